"""What it takes to bring bytes of a disk to a GPU, without rawduck's own routes."""
