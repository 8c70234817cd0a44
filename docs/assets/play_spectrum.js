// The spectrum of a kernel on two Gaussian classes, predicted without data: docs/theory.md, section 6.
//
// With covariances c_a I all is in one unknown, R = 1/(1 + sum_b (n_b/p) g_b c_b): by (6.9) g_a = 1/(c_a R - z), and R
// is a root of a cubic with real coefficients. Inside the bulk two of its roots are complex; outside, the right one is the
// root with R^2 sum_a (n_a/p) c_a^2 g_a^2 < 1. Units are those where alpha_1 = 1, until the end.
window.playSpectrum = (function () {
  "use strict";
  const { eigen } = window.playMatrices;

  // Real roots, and the complex root below the real line if there is one, of x^3 + b x^2 + c x + d.
  function cubicRoots(b, c, d) {
    const shift = -b / 3, p = c - (b * b) / 3, q = (2 * b ** 3) / 27 - (b * c) / 3 + d;
    const polished = (x) => {
      for (let step = 0; step < 3; step++) {
        const slope = (3 * x + 2 * b) * x + c;
        if (slope !== 0) x -= (((x + b) * x + c) * x + d) / slope;
      }
      return x;
    };
    const discriminant = -4 * p ** 3 - 27 * q * q;
    if (discriminant >= 0) {
      const size = 2 * Math.sqrt(Math.max(-p / 3, 0));
      const angle = size === 0 ? 0 : Math.acos(Math.min(Math.max((3 * q) / (p * size), -1), 1)) / 3;
      return { real: [0, 1, 2].map((k) => polished(size * Math.cos(angle - (2 * Math.PI * k) / 3) + shift)), complex: null };
    }
    const root = Math.sqrt((q * q) / 4 + p ** 3 / 27);
    const larger = Math.cbrt(-q / 2 - Math.sign(q || 1) * root);
    const real = polished(larger - p / (3 * larger) + shift);
    // What is left after the real root: x^2 + (b + real) x + rest.
    const linear = b + real, rest = c + real * linear;
    const inner = rest - (linear * linear) / 4;
    return { real: [real], complex: inner > 0 ? [-linear / 2, -Math.sqrt(inner)] : null };
  }

  // Everything at one real z: the density of eigenvalues, or g and its slope outside the bulk.
  function resolvent(classes, z) {
    const [c1, c2] = classes.variances, [r1, r2] = classes.ratios;
    const lead = c1 * c2, sum = c1 + c2;
    const roots = cubicRoots(
      (-sum * z + (r1 + r2) * lead - lead) / lead,
      (z * z - z * (r1 * c1 + r2 * c2) + sum * z) / lead,
      (-z * z) / lead,
    );
    if (roots.complex) {
      const [real, imaginary] = roots.complex;
      const parts = classes.variances.map((c) => (-c * imaginary) / ((c * real - z) ** 2 + (c * imaginary) ** 2));
      return { density: (parts[0] * r1 + parts[1] * r2) / (r1 + r2) / Math.PI };
    }
    let best = null;
    for (const R of roots.real) {
      const g = classes.variances.map((c) => 1 / (c * R - z));
      const radius = R * R * classes.ratios.reduce((total, r, a) => total + r * (classes.variances[a] * g[a]) ** 2, 0);
      if (best === null || radius < best.radius) best = { density: 0, R, g, radius };
    }
    return best;
  }

  // The matrix H of (6.11), scaled to order 1 as `scale` says, which does not change the signs of its eigenvalues.
  function perturbation(classes, scalars, g, R) {
    const { p, means, variances, ratios } = classes;
    const norm = scalars.norm / scalars.linear, trace = scalars.trace / scalars.linear;
    const side = variances.map((c) => -Math.sqrt(norm) * (c - 1) * Math.sqrt(p));
    const last = 1 + variances.reduce((sum, c, a) => sum + 2 * norm * ratios[a] * c * c * g[a], 0);
    const entry = (a, b) =>
      -means[a] * means[b] * R - trace * variances[a] * variances[b] - (a === b ? 1 / (ratios[a] * g[a]) : 0);
    return [
      [entry(0, 0), entry(0, 1), side[0]],
      [entry(1, 0), entry(1, 1), side[1]],
      [side[0], side[1], last],
    ];
  }

  function scaledEigen(classes, scalars, z) {
    const { g, R } = resolvent(classes, z);
    const matrix = perturbation(classes, scalars, g, R);
    const scale = matrix.map((row, k) => Math.sqrt(Math.abs(row[k]) + (k < 2 ? 1 / Math.abs(classes.ratios[k] * g[k]) : 1)));
    return { g, R, scale, ...eigen(matrix.map((row, i) => row.map((value, j) => value / (scale[i] * scale[j])))) };
  }

  // Of the eigenvector of an isolated eigenvalue, (6.12): squared projections on the two classes, and its contrast, the
  // squared projection on the vector that is -1 on one class and 1 on the other.
  function alignment(classes, scalars, z, index) {
    const { g, R, scale, vectors } = scaledEigen(classes, scalars, z);
    const { means, variances, ratios } = classes;
    const y = scale.map((size, k) => vectors[k][index] / size);
    const first = ratios.reduce((sum, r, a) => sum + r * variances[a] * g[a] ** 2, 0);
    const second = R * R * ratios.reduce((sum, r, a) => sum + r * (variances[a] * g[a]) ** 2, 0);
    const common = first / (1 - second); // sum_b r_b c_b dg_b/dz
    const rates = g.map((value, a) => value * value * (1 + variances[a] * R * R * common));
    const norm = scalars.norm / scalars.linear;
    const along = y[0] * means[0] + y[1] * means[1];
    const length = along * along * R * R * common +
      rates.reduce((sum, rate, a) => sum + (y[a] * y[a] * rate) / (ratios[a] * g[a] ** 2) +
        y[2] * y[2] * 2 * norm * ratios[a] * variances[a] ** 2 * rate, 0);
    const [one, two] = ratios.map((r, a) => y[a] / Math.sqrt(r * length));
    return { alignment: [one ** 2, two ** 2], contrast: (one - two) ** 2 / 2 };
  }

  function bisect(test, low, high) {
    for (let step = 0; step < 200 && high - low > 1e-14 * Math.abs(high); step++) {
      const middle = (low + high) / 2;
      if (test(middle)) high = middle;
      else low = middle;
    }
    return (low + high) / 2;
  }

  // Eigenvalues below this share of the first gap belong to the atom.
  const NEAR_ZERO = 1e-4;

  // Intervals of z with eigenvalues, from the lowest to the highest.
  function bulks(classes) {
    const total = classes.ratios[0] + classes.ratios[1];
    const bound = 1.05 * Math.max(...classes.variances) * (1 + Math.sqrt(total)) ** 2;
    const inside = (z) => resolvent(classes, z).density > 0;
    const points = 600, found = [];
    let before = 0, was = false;
    for (let k = 1; k <= points; k++) {
      const z = bound * (k / points) ** 2, is = inside(z);
      if (is && !was) found.push([k === 1 ? 0 : bisect(inside, before, z), null]);
      if (!is && was) found[found.length - 1][1] = bisect((place) => !inside(place), before, z);
      [before, was] = [z, is];
    }
    return found;
  }

  // Isolated eigenvalues between two points without spectrum: each eigenvalue of H grows along the line.
  function isolated(classes, scalars, low, high) {
    const sign = (z, k) => scaledEigen(classes, scalars, z).values[k];
    const found = [];
    for (let k = 0; k < 3; k++) {
      if (!(sign(low, k) <= 0 && sign(high, k) > 0)) continue;
      const z = bisect((place) => sign(place, k) > 0, low, high);
      found.push({ z, ...alignment(classes, scalars, z, k) });
    }
    return found;
  }

  // How many of n eigenvalues of the bulk lie within a distance of an edge; negative distances are below it.
  function within(classes, n, edge, distance) {
    const steps = 64;
    let total = 0;
    // In the root of the distance, like which the density grows from an edge.
    for (let k = 0; k < steps; k++) {
      const root = (k + 0.5) / steps;
      total += resolvent(classes, edge + distance * root * root).density * root;
    }
    return (n * total * 2 * Math.abs(distance)) / steps;
  }

  // Whether an eigenvalue is farther from every edge than the outermost one of the bulk is expected to be, (6.13).
  function standsOut(classes, n, intervals, z) {
    return intervals.every(([low, high]) =>
      (z >= low || within(classes, n, low, low - z) > 0.5) && (z <= high || within(classes, n, high, high - z) > 0.5));
  }

  // The predicted spectrum of n samples of a mixture for a kernel with these scalars, (6.4).
  //   bulks: intervals; isolated: [{value, alignment, contrast}]; atom: {value, count} or null; density(value); points
  function spectrum(scalars, mixture, n) {
    const classes = { ...mixture, ratios: [n / (2 * mixture.p), n / (2 * mixture.p)] };
    const origin = scalars.diagonal - scalars.linear, stretch = scalars.linear;
    const place = (z) => origin + stretch * z;
    const intervals = bulks(classes);
    const top = intervals[intervals.length - 1][1];
    const margin = 1e-9;
    const gaps = intervals.slice(1).map((bulk, k) => [intervals[k][1] * (1 + margin), bulk[0] * (1 - margin)]);
    if (intervals[0][0] > 0) gaps.unshift([NEAR_ZERO * intervals[0][0], intervals[0][0] * (1 - margin)]);
    let beyond = 2 * top;
    while (scaledEigen(classes, scalars, beyond).values[0] <= 0) beyond *= 2;
    gaps.push([top * (1 + margin), beyond]);
    // Each eigenvalue of H that is negative next to the atom has taken one eigenvalue out of it.
    const moved = scaledEigen(classes, scalars, gaps[0][0]).values.filter((value) => value <= 0).length;
    const found = gaps.flatMap(([low, high]) => isolated(classes, scalars, low, high))
      .filter(({ z }) => standsOut(classes, n, intervals, z));
    return {
      bulks: intervals.map((bulk) => bulk.map(place)),
      isolated: found.map(({ z, ...one }) => ({ value: place(z), ...one })).sort((a, b) => a.value - b.value),
      atom: n > mixture.p ? { value: origin, count: n - mixture.p - moved } : null,
      density: (value) => {
        const z = (value - origin) / stretch;
        return z > 0 ? resolvent(classes, z).density / stretch : 0;
      },
      // Points on each bulk, closer together towards its edges, where the density falls like a root.
      points: (number) => intervals.flatMap(([low, high]) => Array.from({ length: number + 1 }, (_, k) =>
        place(low + ((high - low) * (1 - Math.cos((Math.PI * k) / number))) / 2))),
    };
  }

  return { spectrum };
})();
