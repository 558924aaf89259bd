"""The recipe for Ceph in docs/INSTALL.md."""

from __future__ import annotations

from recipes import recipe, run_program


def test_parquet_on_ceph(cluster, tmp_path):
    program = recipe("Parquet on Ceph").replace("/etc/ceph/ceph.conf", str(cluster.conf))
    assert "999999" in run_program(program.replace("rados://pool/", "rados://data/"), tmp_path)
