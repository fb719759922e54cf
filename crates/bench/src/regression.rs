//! Least squares of a straight line, with confidence intervals.

use serde::Serialize;

/// A coefficient and half the width of its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// It lies so far from the true one at most, in 95 of 100 cases.
    pub half_width: f64,
}

/// `y = slope * x + intercept`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Line {
    /// m.
    pub slope: Estimate,
    /// k.
    pub intercept: Estimate,
    /// Share of the variance of y that the line explains, 0 to 1.
    pub r_squared: f64,
    /// Points.
    pub points: usize,
}

/// Fits a line. None with fewer than three points, or if all have the same x.
#[must_use]
pub fn fit(points: &[(f64, f64)]) -> Option<Line> {
    let n = points.len() as f64;
    if points.len() < 3 {
        return None;
    }
    let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / n;
    let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
    let sxx: f64 = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    let syy: f64 = points.iter().map(|(_, y)| (y - y_mean).powi(2)).sum();
    let sxy: f64 = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    if sxx <= 0.0 {
        return None;
    }
    let slope = sxy / sxx;
    let intercept = y_mean - slope * x_mean;
    let residual: f64 = points.iter().map(|(x, y)| (y - slope * x - intercept).powi(2)).sum();
    let variance = residual / (n - 2.0);
    let t = student_t(n - 2.0);
    Some(Line {
        slope: Estimate { value: slope, half_width: t * (variance / sxx).sqrt() },
        intercept: Estimate { value: intercept, half_width: t * (variance * (1.0 / n + x_mean * x_mean / sxx)).sqrt() },
        r_squared: if syy > 0.0 { 1.0 - residual / syy } else { 1.0 },
        points: points.len(),
    })
}

/// The 97.5 % quantile of Student's t distribution: exact for one and two degrees of freedom, else by the expansion of
/// Abramowitz and Stegun, 26.7.5.
fn student_t(freedom: f64) -> f64 {
    const Z: f64 = 1.959_963_985;
    if freedom < 1.5 {
        return 12.706;
    }
    if freedom < 2.5 {
        return 4.303;
    }
    let (z3, z5, z7) = (Z.powi(3), Z.powi(5), Z.powi(7));
    Z + (z3 + Z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / (384.0 * freedom.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, expected) in [(1.0, 12.706), (2.0, 4.303), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042)] {
            let found = student_t(freedom);
            assert!((found - expected).abs() < 0.01, "{freedom} degrees of freedom: {found} instead of {expected}");
        }
    }

    #[test]
    fn points_on_a_line_give_it_without_doubt() {
        let points: Vec<(f64, f64)> = (0..10).map(|x| (f64::from(x), 3.0 * f64::from(x) + 2.0)).collect();
        let line = fit(&points).unwrap();
        assert!((line.slope.value - 3.0).abs() < 1e-12 && (line.intercept.value - 2.0).abs() < 1e-12);
        assert!(line.slope.half_width < 1e-6 && line.r_squared > 0.999_999);
    }

    #[test]
    fn a_known_example_has_its_known_intervals() {
        // By hand: slope 1.5, residuals 0.5, -1, 0.5; variance 1.5, so the slope's deviation is sqrt(1.5 / 2).
        let line = fit(&[(1.0, 1.0), (2.0, 1.0), (3.0, 4.0)]).unwrap();
        assert_eq!((line.slope.value, line.intercept.value), (1.5, -1.0));
        assert!((line.slope.half_width - 12.706 * 0.75_f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn too_few_points_or_one_rate_give_nothing() {
        assert_eq!(fit(&[(1.0, 1.0), (2.0, 2.0)]), None);
        assert_eq!(fit(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
    }
}
