"""Whether results differ, what to say about it, and what was covered."""
