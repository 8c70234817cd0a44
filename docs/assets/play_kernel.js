// Kernel entries on samples of two Gaussian classes, and how far two kernels are apart.
window.playKernel = (function () {
  "use strict";
  const { dot: inner, product, minimum } = window.playMatrices;

  // Independent standard normal numbers from a seed: mulberry32, then Box and Muller.
  function normals(seed) {
    let state = seed;
    function uniform() {
      state = (state + 0x6d2b79f5) | 0;
      let t = Math.imul(state ^ (state >>> 15), 1 | state);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    }
    return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  }

  // Rows x ~ N(mu_a/sqrt(p), c_a I/p) of both classes in turn; the same noise at every setting.
  function samples({ p, means, variances }, number) {
    const next = normals(1);
    return Array.from({ length: number }, (_, i) =>
      Array.from({ length: p }, (_, k) => (Math.sqrt(variances[i % 2]) * next() + (k === 0 ? means[i % 2] : 0)) / Math.sqrt(p)));
  }

  // The kernel matrix of a model, row after row.
  function kernel(model, rows) {
    const size = rows.length, squares = rows.map((row) => inner(row, row)), matrix = new Float64Array(size * size);
    for (let i = 0; i < size; i++) {
      matrix[i * size + i] = model.diagonal(squares[i]);
      for (let j = 0; j < i; j++) {
        matrix[i * size + j] = matrix[j * size + i] = model.entry(squares[i], squares[j], inner(rows[i], rows[j]));
      }
    }
    return matrix;
  }

  // The operator norm of a symmetric matrix A: B = A^1024 by ten squarings, then ||A B||/||B|| in Frobenius norm.
  function norm(matrix) {
    const size = Math.sqrt(matrix.length), length = (a) => Math.sqrt(inner(a, a));
    let power = matrix;
    for (let k = 0; k < 10; k++) {
      const scale = length(power) || 1;
      power = power.map((value) => value / scale);
      power = product(power, power, size);
    }
    return length(product(matrix, power, size)) / (length(power) || 1);
  }

  // The factor c that makes the kernel error ||K - c K'||/||K|| in operator norm smallest, and this error. It is a convex
  // function of c, and its minimum is near the factor of least squares.
  function distance(target, other) {
    const whole = norm(target), error = (factor) => norm(target.map((value, k) => value - factor * other[k])) / whole;
    const start = inner(target, other) / inner(other, other), reach = (2 * error(start) * whole) / norm(other);
    const [factor, least] = minimum(error, start - reach, start + reach, 16);
    return { factor, error: least };
  }

  return { samples, kernel, distance };
})();
