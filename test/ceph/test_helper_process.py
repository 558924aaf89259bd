"""The helper process by itself: where it listens, and when it ends."""

from __future__ import annotations

import socket
import subprocess
import time

import pytest
from rawduck.ceph.cluster import class_directory

pytestmark = pytest.mark.skipif(
    class_directory() is None,
    reason="no helper: rados/objclass.h or libpython was missing when the package was built",
)


def test_a_directory_that_others_can_enter_is_refused(tmp_path):
    helper = class_directory() / "rawduck-osd-helper"
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    for name in ("open", "link"):
        result = subprocess.run(
            [helper, f"--socket-dir={tmp_path / name}"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert result.returncode == 1
        assert "only this user can enter" in result.stderr
    usage = subprocess.run([helper], capture_output=True, text=True, timeout=30, check=False)
    assert usage.returncode == 2
    assert "--socket-dir" in usage.stderr


def test_a_helper_ends_with_its_last_osd(cluster):
    """A directory of its own, and a client that comes and goes instead of an OSD."""
    directory = cluster.directory / "run" / "other"
    helper = class_directory() / "rawduck-osd-helper"
    with subprocess.Popen([helper, f"--socket-dir={directory}", "--end-when-unused"]) as process:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            limit = time.monotonic() + 10
            while client.connect_ex(str(directory / "helper.sock")) != 0:
                assert time.monotonic() < limit
                time.sleep(0.05)
            time.sleep(3)
            assert process.poll() is None
        assert process.wait(timeout=15) == 0
    # One that was killed leaves its socket behind, which does not stop the next one.
    for _ in range(2):
        with subprocess.Popen([helper, f"--socket-dir={directory}"]) as process:
            time.sleep(0.5)
            assert process.poll() is None
            process.kill()
