"""The linear algebra that several rooms share, each algorithm once.

`chebyshev`: interpolation, also in the logarithm of a norm. `block_lanczos`: eigenvalues and norms from products alone.
`conjugate_gradients`: linear systems with several right sides, Woodbury's identity, Nyström. `dense`: factorisations
that refuse singular matrices, leave-one-out residuals.
"""
