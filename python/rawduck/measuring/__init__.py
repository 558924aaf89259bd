"""Measuring a process: its time, its transfers, what it copies and which system calls it makes."""
