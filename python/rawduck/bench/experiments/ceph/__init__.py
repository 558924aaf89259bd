"""Those that need a Ceph cluster."""
