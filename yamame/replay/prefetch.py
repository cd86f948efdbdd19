"""Items of an iterator made ahead by one background thread."""

import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


def prefetch(source: Iterator[_Item], *, depth: int) -> Generator[_Item, None, None]:
    """The items of `source` in order, up to `depth` of them ready before they are asked for.

    The thread begins with the first item asked for. What `source` raises is raised here, after the items before it.
    Closing the generator, or dropping it, stops the thread before it makes another item and waits for that.
    """
    ready: SimpleQueue[_Made[_Item] | _End] = SimpleQueue()
    free_places = threading.Semaphore(depth)
    stopping = threading.Event()

    def produce() -> None:
        try:
            while free_places.acquire() and not stopping.is_set():
                ready.put(_Made(next(source)))
        except StopIteration:
            ready.put(_End(None))
        except BaseException as error:
            ready.put(_End(error))

    thread = threading.Thread(target=produce, name="prefetch", daemon=True)
    thread.start()
    try:
        while isinstance(made := ready.get(), _Made):
            free_places.release()
            yield made.item
        if made.error is not None:
            raise made.error
    finally:
        stopping.set()
        free_places.release()
        thread.join()


@dataclass(frozen=True)
class _Made(Generic[_Item]):
    item: _Item


@dataclass(frozen=True)
class _End:
    error: BaseException | None
