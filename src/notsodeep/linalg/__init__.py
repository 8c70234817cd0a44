"""The linear algebra that several rooms share, each algorithm once.

`chebyshev`: interpolation, also in the logarithm of a norm. `block_lanczos`: eigenvalues and norms from products alone.
`conjugate_gradients`: linear systems with several right sides. `low_rank`: Woodbury's identity, random range finders,
Nyström. `dense`: factorisations that refuse singular matrices. `leave_one_out`: residuals of a ridge regression.
"""
