"""MicroBatcher: questions that come within a millisecond or two are answered together, in one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class MicroBatcher(Generic[Question, Answer]):
    """A queue before a function that answers many questions at once.

    The first question of a batch waits `seconds` for others. While a batch is being answered, the next one
    collects, and starts when the thread is free. `most` = 1 answers each question by itself.
    """

    def __init__(
        self, answers: Callable[[Sequence[Question]], Sequence[Answer]], seconds: float, most: int
    ) -> None:
        self.seconds, self.most = seconds, most
        self.sizes: Callable[[int], object] = lambda size: None
        """Called with the size of each batch."""
        self._answers = answers
        self._waiting: list[tuple[Question, asyncio.Future[Answer]]] = []
        self._is_closed = False
        self._work: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1)

    async def ask(self, question: Question) -> Answer:
        """The answer, the same as if the question came alone."""
        if self._is_closed:
            raise RuntimeError("the service is stopping, and answers nothing new")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._answer_all())
        return await future

    async def _answer_all(self) -> None:
        """Answer batch after batch, until nothing waits."""
        if self.most > 1 and self.seconds:
            await asyncio.sleep(self.seconds)
        while self._waiting:
            batch = [one for one in self._waiting[: self.most] if not one[1].done()]  # a caller may be gone
            del self._waiting[: self.most]
            if not batch:
                continue
            self.sizes(len(batch))
            questions, futures = zip(*batch, strict=True)
            work = asyncio.get_running_loop().run_in_executor(self._thread, self._answered, questions)
            for future, answer in zip(futures, await work, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    def _answered(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        """An answer or an error for each; after an error each is asked alone, so that only one fails."""
        try:
            return list(self._answers(questions))
        except Exception as error:
            if len(questions) == 1:
                return [error]
            return [answer for question in questions for answer in self._answered([question])]

    def close(self) -> None:
        """Answer nothing new, and wait for the batch that is being answered."""
        self._is_closed = True
        self._thread.shutdown()
