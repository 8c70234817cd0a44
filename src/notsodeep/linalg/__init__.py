"""The linear algebra that several rooms share, each algorithm once.

`chebyshev`: interpolation, also in the logarithm of a norm. `block_lanczos`: eigenvalues and norms from products alone.
`dense`: factorisations that refuse singular matrices. `kernel_ridge`: ridge regression with exact leave-one-out.
"""
