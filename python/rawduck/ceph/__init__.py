"""A Ceph cluster on this machine, for trying out, tests and benchmarks."""
