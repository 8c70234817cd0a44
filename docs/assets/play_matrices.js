// Linear algebra of small dense matrices, and a minimum, for the page Play.
window.playMatrices = (function () {
  "use strict";

  const times = (a, x) => a.map((row) => dot(row, x));
  const dot = (x, y) => x.reduce((sum, value, k) => sum + value * y[k], 0);
  const trace = (a) => a.reduce((sum, row, k) => sum + row[k], 0);
  const zeros = (rows, columns) => Array.from({ length: rows }, () => new Array(columns).fill(0));

  // The solution of two equations.
  function solvePair([[a, b], [c, d]], [x, y]) {
    const determinant = a * d - b * c;
    return [(d * x - b * y) / determinant, (a * y - c * x) / determinant];
  }

  // Eigenvalues of a symmetric matrix in ascending order and its eigenvectors in columns, by Jacobi's rotations.
  function eigen(matrix) {
    const size = matrix.length;
    const a = matrix.map((row) => [...row]);
    const v = a.map((row, i) => row.map((_, j) => (i === j ? 1 : 0)));
    for (let sweep = 0; sweep < 60; sweep++) {
      let off = 0, all = 0;
      a.forEach((row, i) => row.forEach((value, j) => {
        all += value * value;
        if (i !== j) off += value * value;
      }));
      if (off <= 1e-32 * all) break;
      for (let p = 0; p < size; p++) {
        for (let q = p + 1; q < size; q++) {
          if (a[p][q] === 0) continue;
          const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
          const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
          const c = 1 / Math.sqrt(t * t + 1), s = t * c;
          for (let k = 0; k < size; k++) [a[k][p], a[k][q]] = [c * a[k][p] - s * a[k][q], s * a[k][p] + c * a[k][q]];
          for (let k = 0; k < size; k++) {
            [a[p][k], a[q][k]] = [c * a[p][k] - s * a[q][k], s * a[p][k] + c * a[q][k]];
            [v[k][p], v[k][q]] = [c * v[k][p] - s * v[k][q], s * v[k][p] + c * v[k][q]];
          }
        }
      }
    }
    const order = a.map((_, k) => k).sort((i, j) => a[i][i] - a[j][j]);
    return { values: order.map((k) => a[k][k]), vectors: v.map((row) => order.map((k) => row[k])) };
  }

  // The product of square matrices that are stored row after row.
  function product(a, b, size, result = new Float64Array(size * size)) {
    result.fill(0);
    for (let i = 0; i < size; i++) {
      for (let k = 0; k < size; k++) {
        const factor = a[i * size + k];
        for (let j = 0; j < size; j++) result[i * size + j] += factor * b[k * size + j];
      }
    }
    return result;
  }

  // Where a function with a single minimum between two ends is least, by golden sections. Returns [place, value].
  function minimum(f, low, high, steps) {
    const golden = (Math.sqrt(5) - 1) / 2;
    const at = (place) => [place, f(place)];
    let left = at(high - golden * (high - low)), right = at(low + golden * (high - low));
    for (let step = 0; step < steps; step++) {
      if (left[1] < right[1]) {
        [high, right] = [right[0], left];
        left = at(high - golden * (high - low));
      } else {
        [low, left] = [left[0], right];
        right = at(low + golden * (high - low));
      }
    }
    return left[1] < right[1] ? left : right;
  }

  return { times, dot, trace, zeros, solvePair, eigen, product, minimum };
})();
