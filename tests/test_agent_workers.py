"""Workers: one while nothing is slow, another for what stands behind a slow piece, none idle that was not needed."""

import threading

from secondsight.agent.tick.workers import Workers

PATIENCE_SECONDS = 20.0


def test_pieces_are_done_in_order_by_one_thread() -> None:
    workers, done, threads = Workers("test"), [], set()
    is_over = threading.Event()

    def piece(number: int) -> None:
        done.append(number)
        threads.add(threading.get_ident())
        if number == 29:
            is_over.set()

    for first in (0, 10, 20):
        workers.run([lambda number=number: piece(number) for number in range(first, first + 10)])
    assert is_over.wait(PATIENCE_SECONDS)
    assert sorted(done) == list(range(30))
    workers.end()


def test_what_stands_behind_a_slow_piece_is_taken_over() -> None:
    workers, release, done = Workers("test"), threading.Event(), threading.Semaphore(0)
    workers.run([lambda: release.wait(PATIENCE_SECONDS), done.release, done.release])
    assert done.acquire(timeout=PATIENCE_SECONDS)
    assert done.acquire(timeout=PATIENCE_SECONDS)
    workers.run([done.release])
    assert done.acquire(timeout=PATIENCE_SECONDS)
    release.set()
    workers.end()


def test_every_slow_piece_holds_one_thread_and_no_more() -> None:
    workers, release, done = Workers("test"), threading.Event(), threading.Semaphore(0)
    before = threading.active_count()
    for _ in range(3):
        workers.run([lambda: release.wait(PATIENCE_SECONDS)])
    for _ in range(5):
        workers.run([done.release] * 4)
    for _ in range(20):
        assert done.acquire(timeout=PATIENCE_SECONDS)
    assert threading.active_count() - before <= 5
    release.set()
    workers.end()


def test_nothing_to_do_starts_nothing() -> None:
    workers, before = Workers("test"), threading.active_count()
    workers.run([])
    workers.end()
    assert threading.active_count() == before
