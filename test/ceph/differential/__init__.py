"""A differential fuzzer: pushed queries must return what reading returns."""
