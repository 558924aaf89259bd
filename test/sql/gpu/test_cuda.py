"""How NVIDIA's driver is called, by the checker that stands in for it (test/cuda_checker): it ends the
process at what a caller must not do. Nothing here has seen a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import cuda_memory
import duckdb
import numpy
import pytest
import rawduck
from cuda_memory import checker, copied, counts, driver, stream_of_a_consumer, taken
from gpu_support import columns_of, numbers_of, queried, scanned, selected
from rawduck import gpu
from rawduck.errors import RawduckError

OUT_OF_MEMORY = 2
SEED = int(os.environ.get("RAWDUCK_GPU_SEED", 0))
STRIDE = 5
QUERY = "SELECT i, 'text ' || i AS s, i % 7 AS k FROM range(60_000) r(i)"


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table of several row groups, with NULLs, strings, decimals, deleted rows and updates."""
    if os.environ.get("RAWDUCK_TEST_LIBCUDA") != str(cuda_memory.CHECKER):
        pytest.skip("scripts/run_tests.py sql builds the checker of driver calls")
    monkeypatch.setenv("RAWDUCK_GPU", "0")
    with rawduck.connect() as connection:
        connection.execute(f"ATTACH '{tmp_path / 't.db'}' AS d (ROW_GROUP_SIZE 8192); USE d")
        connection.execute("""CREATE TABLE t AS SELECT i, hash(i) AS h, 'text ' || (i % 900) AS s,
            CASE WHEN i % 5 > 0 THEN i::SMALLINT END AS n, i % 2 = 0 AS b, (i / 100)::DECIMAL(9, 2) AS d,
            md5(i::VARCHAR)::UUID AS u FROM range(30_000) r(i)""")
        connection.execute("CHECKPOINT d")
        connection.execute("DELETE FROM t WHERE i % 7 = 0 AND i < 9_000")
        connection.execute("UPDATE t SET h = 1 WHERE i = 20_000")
        next(gpu.scan(connection, "t"))  # what is opened once for a process
        yield connection
        checker().rawduck_checker_fail(0, 0)
        checker().rawduck_checker_limit(0)
        checker().rawduck_checker_seed(0)


def settled(expected=None):
    """What is held once it is that, or, where nothing is expected, for some time."""
    gc.collect()
    found, deadline = counts().held(), time.monotonic() + 20
    while found != expected and time.monotonic() < deadline:  # a thread gives back what others may have used
        time.sleep(0.1)
        expected, found = found if expected is None else expected, counts().held()
    return found


def test_without_a_driver_there_is_one_clear_error_and_the_rest_works():
    program = """
        import rawduck
        from rawduck import gpu
        con = rawduck.connect()
        con.execute("CREATE TABLE t AS SELECT 1 AS x")
        for call in (lambda: gpu.scan(con, "t"), lambda: gpu.query(con, "FROM t", device=0)):
            try:
                call()
            except rawduck.RawduckError as error:
                assert "RAWDUCK_GPU=emulated" in str(error), error
                assert "no GPU" in str(error), error
            else:
                raise AssertionError("no error")
        assert len(next(gpu.scan(con, "t", device="emulated"))) == 1
        assert gpu.explain(con, "t")[0]["route"] == "duckdb"
        print(con.execute("FROM t").fetchall())
    """
    # The path for tests counts for nothing without the variable beside it; a GPU is hidden.
    environment = {
        **os.environ,
        "RAWDUCK_TEST_LIBCUDA": str(cuda_memory.CHECKER),
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    for name in ("RAWDUCK_TEST_FUNCTIONS", "RAWDUCK_GPU"):
        environment.pop(name, None)
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[(1,)]\n"), done.stderr


@pytest.mark.parametrize("device", [1, "cuda:7"])
def test_a_gpu_that_there_is_not(table, device):
    with pytest.raises(RawduckError, match=r"no GPU \d; this machine has 1"):
        gpu.scan(table, "t", device=device)


@pytest.mark.parametrize("seed", range(1, 9))
def test_whenever_the_device_does_its_work(table, seed):
    """Nothing relies on when a stream is run, only on what it is told to wait for."""
    checker().rawduck_checker_seed(seed)
    before = settled()
    assert scanned(table, batch_rows=7_000) == selected(table)
    assert queried(table, QUERY, batch_rows=7_000) == selected(table, f"({QUERY})")
    assert settled(before) == before


def failing_calls(run):
    """Lets each call of the driver fail once; after each, `run` gives what it should, and nothing is left.
    Every fifth call: RAWDUCK_GPU_SEED=1 to 4 for the others."""
    expected = run()
    before = settled()
    checker().rawduck_checker_fail(0, 0)
    run()
    calls, told = counts().calls, {}
    for call in range(1 + SEED % STRIDE, calls + 1, STRIDE):
        checker().rawduck_checker_fail(call, OUT_OF_MEMORY if call % 2 else 999)
        for attempt in range(3):  # the first failure, and one that giving something back has left
            try:
                found = run()
            except (RawduckError, duckdb.Error) as error:
                told[checker().rawduck_checker_failed().decode()] = str(error)
                assert attempt < 2
            else:
                assert found == expected
                break
        checker().rawduck_checker_fail(0, 0)
        assert counts().held() == before or settled(before) == before, f"call {call} of {calls}"
    with contextlib.suppress(RawduckError):  # of what was given back last, told to whoever comes next
        run()
    for function, error in told.items():
        assert "GPU 0 (" in error, f"{function}: {error}"
    return told


def test_every_call_of_a_scan_fails_once(table, tmp_path):
    """Two row groups and two batches: decoded columns, strings, deleted rows, and rows that DuckDB scans."""
    table.execute(f"ATTACH '{tmp_path / 's.db'}' AS s (ROW_GROUP_SIZE 2048)")
    table.execute("CREATE TABLE s.small AS SELECT i, s, n FROM t LIMIT 3_000; CHECKPOINT s")
    table.execute("DELETE FROM s.small WHERE i % 5 = 0; INSERT INTO s.small VALUES (1, 'x', NULL)")
    small = ["s.small", ["i", "s", "n"]]
    assert {taken["route"] for taken in next(gpu.scan(table, *small)).report["routes"]} == {"gpu", "duckdb"}
    told = failing_calls(lambda: [len(batch) for batch in gpu.scan(table, *small, batch_rows=2_000)])
    assert {"cuLaunchKernel", "cuMemAllocFromPoolAsync"} <= told.keys()
    if SEED == 0:  # which of those that are called rarely are among every fifth one
        assert {"cuMemcpyHtoDAsync_v2", "cuEventRecord"} <= told.keys()


def test_every_call_of_a_query_fails_once(table):
    query = "SELECT i, CASE WHEN i % 3 = 0 THEN NULL ELSE 't' || i END AS s FROM range(5_000) r(i)"
    told = failing_calls(lambda: [len(batch) for batch in gpu.query(table, query)])
    assert {"cuLaunchKernel", "cuMemAllocFromPoolAsync", "cuEventSynchronize"} & told.keys()


def test_results_beyond_the_pinned_chunks_are_copied_as_well(table):
    """While each batch is used, DuckDB computes ahead: ordinary memory holds what chunks have no room for."""
    table.execute("SET threads = 4; SET max_streaming_buffer_size = '200MiB'")
    pinned = next(gpu.query(table, "SELECT 1")).report["pinned_bytes"]
    table.execute("CREATE TABLE d.many AS SELECT i FROM range(4_000_000) r(i)")
    query, first = "SELECT i, -i AS j, i * 2 AS k, i + 1 AS l FROM d.many", 0
    for batch in gpu.query(table, query, batch_rows=500_000):
        time.sleep(0.3)
        expected = numpy.arange(first, first + len(batch))
        assert (numbers_of(batch["i"]) == expected).all()
        assert (numbers_of(batch["j"]) == -expected).all()
        assert (numbers_of(batch["k"]) == expected * 2).all()
        assert (numbers_of(batch["l"]) == expected + 1).all()
        first += len(batch)
    assert first == 4_000_000
    assert batch.report["peak_waiting_bytes"] > 80 << 20
    assert batch.report["pinned_bytes"] <= pinned + (64 << 20)


@pytest.mark.parametrize("seed", range(1, 5))
def test_pinned_chunks_of_a_query_that_fails_are_used_again_when_they_have_been_copied(table, seed):
    """The next one writes into them at once; the checker looks whether what is to be copied is there."""
    checker().rawduck_checker_seed(seed)
    table.execute("SET threads = 1")
    query = "SELECT if(i < 400_000, i, error('enough')) AS i, hash(i) AS h FROM range(500_000) r(i)"
    for _ in range(5):
        with pytest.raises(duckdb.Error, match="enough"):
            list(gpu.query(table, query))
        assert sum(len(batch) for batch in gpu.query(table, QUERY)) == 60_000


def test_no_memory_left_says_what_to_do(table):
    gpu.scan(table, "t").close()
    checker().rawduck_checker_limit(300_000)
    with pytest.raises(RawduckError, match=r"GPU 0 .* has no room for .* bytes .*MiB of .*batch_rows"):
        scanned(table)
    checker().rawduck_checker_limit(0)
    assert scanned(table) == selected(table)


@pytest.mark.long
def test_long_strings_are_decoded_one_row_group_ahead(table, tmp_path):
    """Row groups of 459 MB each, in a dictionary of one string: room for two of them, not for three."""
    table.execute(f"ATTACH '{tmp_path / 'long.db'}' AS long (ROW_GROUP_SIZE 28672)")
    table.execute(
        "CREATE TABLE long.t AS SELECT repeat('x', 16000) AS s FROM range(3 * 28672); CHECKPOINT long"
    )
    checker().rawduck_checker_limit(1_500_000_000)
    assert sum(len(batch) for batch in gpu.scan(table, "long.t", batch_rows=28672)) == 3 * 28672


def test_batches_and_capsules_are_freed_once(table):
    before = settled()
    for batch in gpu.scan(table, "t", batch_rows=9_000):
        batch["i"].__dlpack__(), batch["i"].__dlpack__(max_version=(1, 0), stream=-1)
        batch.__arrow_c_device_array__(), batch["i"].__cuda_array_interface__
        kept = batch["i"].__dlpack__()
    assert counts().memory > before["memory"]  # the last batch, by its capsule
    del batch, kept
    assert settled(before) == before


def test_who_lets_go_of_a_batch_does_not_wait_for_the_device(table):
    """The device may wait for a function of Python's, which waits for Python's lock."""
    before = settled()
    (batch,) = gpu.scan(table, "t", ["i"])
    assert batch["i"].__cuda_array_interface__["data"][0]
    checker().rawduck_checker_hold(1)
    timer = threading.Timer(20, lambda: checker().rawduck_checker_hold(0))
    timer.start()
    del batch
    assert counts().memory > before["memory"]
    checker().rawduck_checker_hold(0)
    timer.cancel()
    assert settled(before) == before


def test_a_graph_that_another_library_captures_meanwhile_stays_whole(table):
    """In CUDA's strictest mode, as PyTorch does: many calls in any thread would end the capture."""
    rows = len(selected(table)[0])
    checker().rawduck_checker_capture(1)
    try:
        assert sum(len(batch) for batch in gpu.scan(table, "t", batch_rows=7_000)) == rows
        assert sum(len(batch) for batch in gpu.query(table, QUERY, batch_rows=7_000)) == 60_000
    finally:
        checker().rawduck_checker_capture(0)


def test_a_batch_that_is_kept_does_not_keep_the_memory_of_others(table):
    batches = gpu.scan(table, "t", batch_rows=1_000)
    kept = next(batches)
    assert counts().pool_keeps == 2**64 - 1  # until the scan is closed
    batches.close()
    assert 0 < counts().pool_keeps <= 4 << 30
    assert len(kept) == 1_000
    with gpu.query(table, QUERY) as queried:
        next(queried)
        assert counts().pool_keeps == 2**64 - 1
    assert counts().pool_keeps <= 4 << 30


def fail_in_the_loop(table):
    for batch in gpu.scan(table, "t", batch_rows=100):
        batch["missing"]


def test_what_is_left_open_holds_nothing(table):
    before = settled()
    gpu.scan(table, "t")
    next(gpu.scan(table, "t", batch_rows=100))
    with pytest.raises(KeyError):
        fail_in_the_loop(table)
    with gpu.query(table, QUERY, batch_rows=100) as batches:
        next(batches)
    del batches
    assert settled(before) == before


def test_ctrl_c_leaves_nothing(table):
    before = settled()
    endless = "SELECT i FROM range(1000000000000) r(i) WHERE hash(i) = 1"
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(gpu.query(table, endless))
    timer.join()
    assert settled(before) == before


def test_a_scan_returns_now_and_then_for_ctrl_c(tmp_path, monkeypatch):
    """Though its batch is not there yet."""
    monkeypatch.setenv("RAWDUCK_GPU", "emulated")
    with rawduck.connect(tmp_path / "many.db") as connection:
        connection.execute("CREATE TABLE t AS SELECT hash(i) AS h, i FROM range(4_000_000) r(i); CHECKPOINT")
        steps, take = [], gpu._library().rawduck_gpu_next
        with gpu.scan(connection, "t", batch_rows=4_000_000) as batches:
            handle = gpu._Handle()
            while (step := take(batches._source.ticket, ctypes.byref(handle))) == gpu._NOT_YET:
                steps.append(step)
            assert (step, len(gpu.Batch(handle))) == (1, 4_000_000)
            assert steps
        batches = gpu.scan(connection, "t", batch_rows=4_000_000)
        timer = threading.Timer(0.01, lambda: os.kill(os.getpid(), signal.SIGINT))

        def be_interrupted() -> None:
            timer.start()
            list(batches)

        with pytest.raises(KeyboardInterrupt):
            be_interrupted()
        timer.join()
        assert list(batches) == []


def test_ctrl_c_behind_the_opening_leaves_nothing(table, monkeypatch):
    """Also while somebody looks at the traceback."""

    def interrupted(*_):
        raise KeyboardInterrupt

    before = settled()
    monkeypatch.setattr(gpu, "Batches", interrupted)
    for open_it in (lambda: gpu.scan(table, "t"), lambda: gpu.query(table, QUERY)):
        with pytest.raises(KeyboardInterrupt) as caught:
            open_it()
        assert settled(before) == before
        del caught


def interrupted_at(step, open_it):
    """Whether Ctrl-C struck before the step-th instruction of rawduck.gpu, and not behind the opening."""
    left = step

    def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_filename != gpu.__file__ or frame.f_code.co_name in ("close", "__del__"):
            return None
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if left == 0 and event == "opcode":
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        open_it()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def test_ctrl_c_anywhere_in_the_opening_leaves_nothing(table):
    before = settled()
    for open_it in (lambda: gpu.scan(table, "t", ["i"]), lambda: gpu.query(table, "SELECT 1 AS i")):
        step = 1
        while interrupted_at(step, open_it):
            assert settled(before) == before, step
            step += STRIDE
        assert step > 100


@pytest.mark.parametrize("is_default", [True, False])
@pytest.mark.parametrize("interface", ["dlpack", "arrow", "cuda_array_interface"])
def test_memory_is_freed_behind_what_its_consumer_has_asked_for(table, interface, is_default):
    """A copy of the batch that the device has not begun with when the batch goes."""
    library, popped = driver(), ctypes.c_void_p()
    stream = ctypes.c_void_p(1) if is_default else stream_of_a_consumer(1)
    expected = numpy.array(selected(table, columns="i")[0])
    (batch,) = gpu.scan(table, "t", ["i"])
    assert library.cuCtxPushCurrent_v2(library.context) == 0
    pinned = ctypes.c_void_p()
    assert library.cuMemHostAlloc(ctypes.byref(pinned), ctypes.c_size_t(expected.nbytes), 0) == 0
    address, keeper = taken(batch["i"], interface, stream)
    result = library.cuMemcpyDtoHAsync_v2(
        pinned, ctypes.c_uint64(address), ctypes.c_size_t(expected.nbytes), stream
    )
    assert result == 0
    del batch, keeper
    gc.collect()
    counts()  # everything is done now
    content = ctypes.string_at(pinned.value, expected.nbytes)
    assert numpy.array_equal(numpy.frombuffer(content, expected.dtype), expected)
    assert library.cuMemFreeHost(pinned) == 0
    if not is_default:
        assert library.cuStreamDestroy_v2(stream) == 0
    library.cuCtxPopCurrent_v2(ctypes.byref(popped))


def test_the_cuda_array_interface(table):
    (batch,) = gpu.scan(table, "t", nulls=1)
    types = {"i": "<i8", "h": "<u8", "n": "<i2", "b": "|b1"}
    for name, type_string in types.items():
        interface = batch[name].__cuda_array_interface__
        assert (interface["typestr"], interface["shape"]) == (type_string, (len(batch),))
        assert (interface["stream"], interface["version"], interface["strides"]) == (1, 3, None)
    assert copied(batch["i"].__cuda_array_interface__["data"][0], 8) == (1).to_bytes(8, "little")
    for name in ("s", "d"):
        assert not hasattr(batch[name], "__cuda_array_interface__")
    (on_host,) = gpu.query(table, "SELECT 1 AS i", device="emulated")
    assert not hasattr(on_host["i"], "__cuda_array_interface__")


def test_dlpack_of_a_gpu(table):
    (batch,) = gpu.scan(table, "t", ["i"])
    column = batch["i"]
    assert column.__dlpack_device__() == (cuda_memory.CUDA, 0)
    for stream in (0, -2):
        with pytest.raises(BufferError, match="stream"):
            column.__dlpack__(stream=stream)
    with pytest.raises(BufferError, match="not on device"):
        column.__dlpack__(dl_device=(1, 0))
    capsule = column.__dlpack__(stream=2)
    address = cuda_memory.pointer_in(capsule, b"dltensor")
    data, device_type, device_id = (
        ctypes.c_uint64.from_address(address),
        *(ctypes.c_int32.from_address(address + offset).value for offset in (8, 12)),
    )
    assert (device_type, device_id) == (cuda_memory.CUDA, 0)
    assert data.value == column.__cuda_array_interface__["data"][0]


def test_the_report_names_the_gpu_and_what_is_pinned(table):
    report = next(gpu.scan(table, "t")).report
    assert report["device"].startswith("GPU 0 (")
    assert 0 < report["pinned_bytes"] <= 8 * (16 << 20) + 2 * (64 << 20)  # slots; scratch, and chunks


def test_a_forked_child_is_told(table):
    batches = gpu.scan(table, "t", batch_rows=1_000)
    batch = next(batches)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            batch["i"].__dlpack__()
            os.write(writer, b"no error")
        except BufferError as error:
            os.write(writer, str(error).encode())
        del batch  # gives nothing back: the driver is the parent's
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        assert "before fork()" in told.read()
    assert os.waitpid(child, 0)[1] == 0
    assert sum(len(left) for left in batches) + len(batch) == len(columns_of(gpu.scan(table, "t", ["i"]))[0])


def test_a_scan_of_before_a_fork_is_refused_in_the_child(table):
    """Its threads are the parent's: the child must not wait for them, neither for a batch nor at its end."""
    batches = gpu.scan(table, "t", batch_rows=1_000)
    rows = len(next(batches))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            next(batches)
            os.write(writer, b"no error")
        except RawduckError as error:
            os.write(writer, str(error).encode())
        del batches
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        assert "was opened before fork()" in told.read()
    assert os.waitpid(child, 0)[1] == 0
    assert rows + sum(len(batch) for batch in batches) == len(selected(table)[0])


def test_pinned_memory_is_pinned_once(table):
    scanned(table)
    before = counts().pinned_bytes
    deadline = time.monotonic() + 60
    for _ in range(20):
        scanned(table)
        assert time.monotonic() < deadline
    assert counts().pinned_bytes <= max(before, 8 * (16 << 20) + (8 << 20))
