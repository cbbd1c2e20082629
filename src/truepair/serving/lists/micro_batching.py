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
        self._is_running = self._is_closed = False
        self._thread = ThreadPoolExecutor(1)

    async def ask(self, question: Question) -> Answer:
        """The answer, the same as if the question came alone."""
        if self._is_closed:
            raise RuntimeError("the service is stopping, and answers nothing new")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((question, future))
        if not self._is_running:
            self._is_running = True
            if self.most > 1 and self.seconds:
                loop.call_later(self.seconds, self._start)
            else:
                self._start()
        return await future

    def _start(self) -> None:
        """Answer the next batch in the thread; callbacks cost a lone question less than a task would."""
        batch: list[tuple[Question, asyncio.Future[Answer]]] = []
        while self._waiting and not batch:
            batch = [one for one in self._waiting[: self.most] if not one[1].done()]  # a caller may be gone
            del self._waiting[: self.most]
        self._is_running = bool(batch)
        if batch:
            self.sizes(len(batch))
            questions, futures = zip(*batch, strict=True)
            work = asyncio.get_running_loop().run_in_executor(self._thread, self._answered, questions)
            work.add_done_callback(lambda done: self._deliver(futures, done.result()))

    def _deliver(
        self, futures: Sequence[asyncio.Future[Answer]], answers: Sequence[Answer | Exception]
    ) -> None:
        for future, answer in zip(futures, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        self._start()

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
