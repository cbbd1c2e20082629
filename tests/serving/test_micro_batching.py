"""Questions that come together are answered together, each as if alone."""

import asyncio
import threading

import pytest

from truepair.serving.lists.micro_batching import MicroBatcher


def ask_all(batcher, questions):
    async def together():
        asks = (batcher.ask(question) for question in questions)
        return await asyncio.gather(*asks, return_exceptions=True)

    found = asyncio.run(together())
    batcher.close()
    return found


def test_questions_at_once_are_one_batch():
    batches = []

    def answers(questions):
        batches.append(list(questions))
        return [2 * question for question in questions]

    assert ask_all(MicroBatcher(answers, 0.001, 64), range(10)) == [2 * n for n in range(10)]
    assert batches == [list(range(10))]


def test_a_batch_has_a_largest_size_and_the_others_follow():
    sizes = []
    batcher = MicroBatcher(lambda questions: [str(question) for question in questions], 0.001, 4)
    batcher.sizes = sizes.append
    assert ask_all(batcher, range(10)) == [str(n) for n in range(10)]
    assert sizes == [4, 4, 2]
    alone = MicroBatcher(lambda questions: [len(questions)] * len(questions), 0.001, 1)
    assert ask_all(alone, range(5)) == [1] * 5


def test_one_that_fails_does_not_fail_the_others():
    def answers(questions):
        return [10 / question for question in questions]

    found = ask_all(MicroBatcher(answers, 0.001, 64), [1, 0, 5])
    assert found[0] == 10
    assert isinstance(found[1], ZeroDivisionError)
    assert found[2] == 2


def test_questions_that_come_while_others_are_answered_gather():
    batches, go = [], threading.Event()

    def answers(questions):
        batches.append(list(questions))
        go.wait(5)
        return questions

    async def late():
        first = asyncio.ensure_future(batcher.ask(1))
        while not batches:
            await asyncio.sleep(0.001)
        others = [asyncio.ensure_future(batcher.ask(n)) for n in (2, 3)]
        await asyncio.sleep(0)
        gone = asyncio.ensure_future(batcher.ask(4))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(first, *others)

    batcher = MicroBatcher(answers, 0.0, 64)
    assert asyncio.run(late()) == [1, 2, 3]
    assert batches == [[1], [2, 3]]
    batcher.close()


def test_after_an_idle_time_questions_are_answered_again():
    batcher = MicroBatcher(lambda questions: list(questions), 0.001, 64)

    async def twice():
        return [await batcher.ask("a"), await batcher.ask("b")]

    assert asyncio.run(twice()) == ["a", "b"]
    batcher.close()
    with pytest.raises(RuntimeError, match="stopping"):
        asyncio.run(batcher.ask("c"))
