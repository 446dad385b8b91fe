"""The compiled linear algebra that all kernels are made of, threads, and the backends that hold matrices."""
