use std::fmt;

use super::chart::{Chart, HEIGHT, WIDTH};

/// An SVG picture: charts side by side. Readable on a light and on a dark page, in the reader's fonts.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    title: &'static str,
    charts: Vec<Chart>,
}

const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #57606a; } \
.grid { stroke: #8c959f; stroke-opacity: 0.3; } \
@media (prefers-color-scheme: dark) { text { fill: #adbac7; } }";

impl Figure {
    pub(super) fn new(title: &'static str, charts: Vec<Chart>) -> Self {
        Self { title, charts }
    }

    /// Returns `true` if no chart has a line.
    pub(super) fn is_empty(&self) -> bool {
        self.charts.iter().all(|chart| chart.series.is_empty())
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = u32::try_from(self.charts.len()).unwrap_or(1);
        let width = WIDTH * f64::from(count);
        writeln!(
            f,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}" role="img">"#
        )?;
        writeln!(f, "<title>{}</title>\n<style>{STYLE}</style>", self.title)?;
        for (chart, i) in self.charts.iter().zip(0_u32..) {
            writeln!(f, r#"<g transform="translate({} 0)">"#, WIDTH * f64::from(i))?;
            chart.write(f)?;
            writeln!(f, "</g>")?;
        }
        writeln!(f, "</svg>")
    }
}

#[cfg(test)]
mod tests {
    use super::super::chart::Series;
    use super::{Chart, Figure};

    #[test]
    fn a_picture_has_a_line_for_each_series_and_charts_side_by_side() {
        let series = |name: &str| Series { name: name.to_owned(), points: vec![(10.0, 1.0), (100.0, 5.0)] };
        let chart =
            Chart { x_axis: "waiters", y_axis: "ms", series: vec![series("turnlock"), series("bare")] };
        let text = Figure::new("A picture", vec![chart.clone(), chart]).to_string();
        assert_eq!(text.matches("<polyline").count(), 4);
        assert!(text.contains(r#"width="1120""#) && text.contains("translate(560 0)"));
        assert_eq!(text.matches("<g ").count(), text.matches("</g>").count());
    }

    #[test]
    fn a_picture_without_series_is_empty() {
        let chart = Chart { x_axis: "waiters", y_axis: "ms", series: vec![] };
        assert!(Figure::new("A picture", vec![chart]).is_empty());
    }
}
