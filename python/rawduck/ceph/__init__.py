"""A Ceph cluster on this machine, to try things on and to measure with."""
