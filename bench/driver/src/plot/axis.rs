use crate::markdown::number;

/// A logarithmic axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    /// The exponents of ten at both ends.
    first: i32,
    last: i32,
    /// The coordinates of the ends in the picture.
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis that covers all values, which must be positive.
    pub(super) fn for_values(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let smallest = values.clone().fold(f64::INFINITY, f64::min).max(1e-6);
        let most = values.fold(smallest, f64::max);
        let first = power(smallest.log10().floor());
        let last = power(most.log10().ceil()).max(first + 1);
        Self { first, last, from, to }
    }

    pub(super) fn position(&self, value: f64) -> f64 {
        let part = (value.log10() - f64::from(self.first)) / f64::from(self.last - self.first);
        self.from + part * (self.to - self.from)
    }

    /// The values with a grid line, and their labels.
    pub(super) fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        (self.first..=self.last).map(|power| {
            let value = 10_f64.powi(power);
            (value, label(value))
        })
    }
}

fn label(value: f64) -> String {
    if value < 1.0 {
        format!("{value}")
    } else {
        number(value).split('.').next().unwrap_or_default().to_owned()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a power of ten that a measured value has is small")]
fn power(log: f64) -> i32 {
    log as i32
}

#[cfg(test)]
mod tests {
    use super::Axis;

    #[test]
    fn an_axis_goes_from_power_to_power() {
        let axis = Axis::for_values([0.5, 20.0, 3_000.0].into_iter(), 0.0, 100.0);
        let labels: Vec<String> = axis.ticks().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0.1", "1", "10", "100", "1,000", "10,000"]);
        assert!((axis.position(0.1) - 0.0).abs() < 1e-9);
        assert!((axis.position(10.0) - 40.0).abs() < 1e-9);
        assert!((axis.position(10_000.0) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn equal_values_have_an_axis_too() {
        let axis = Axis::for_values([10.0, 10.0].into_iter(), 0.0, 1.0);
        assert_eq!(axis.ticks().count(), 2);
    }
}
