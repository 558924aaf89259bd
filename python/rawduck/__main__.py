"""`python -m rawduck` is the command `rawduck`."""

from rawduck.start import main

main()
