use std::fmt::{self, Write};

use super::axis::Axis;

pub(super) const WIDTH: f64 = 560.0;
pub(super) const HEIGHT: f64 = 400.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 48.0;
/// The least distance between the labels at the ends of lines.
const LABEL_DISTANCE: f64 = 15.0;

/// The colour of each participant, readable on a light and on a dark background.
const COLOURS: [(&str, &str); 9] = [
    ("turnlock", "#e5484d"),
    ("turnlock fair", "#d6679a"),
    ("bare", "#8b8d98"),
    ("redisson", "#3e7bd6"),
    ("redisson fair", "#4aa8d8"),
    ("rslock", "#c98a00"),
    ("redsync", "#1c9d8c"),
    ("redis-py", "#8e5bd0"),
    ("node-redlock", "#5a9a2f"),
];
const OTHER_COLOUR: &str = "#b0568f";

/// A line chart with two logarithmic axes.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) x_axis: &'static str,
    pub(super) y_axis: &'static str,
    pub(super) series: Vec<Series>,
}

#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

impl Chart {
    /// Writes the chart as a part of an SVG document.
    pub(super) fn write(&self, out: &mut impl Write) -> fmt::Result {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x_axis = Axis::for_values(points().map(|point| point.0), LEFT, WIDTH - RIGHT);
        let y_axis = Axis::for_values(points().map(|point| point.1), HEIGHT - BOTTOM, TOP);
        self.write_axes(out, &x_axis, &y_axis)?;
        for (series, label_y) in self.series.iter().zip(self.label_positions(&y_axis)) {
            write_series(out, series, label_y, &x_axis, &y_axis)?;
        }
        Ok(())
    }

    fn write_axes(&self, out: &mut impl Write, x_axis: &Axis, y_axis: &Axis) -> fmt::Result {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for (value, label) in x_axis.ticks() {
            let x = x_axis.position(value);
            writeln!(out, r#"<line class="grid" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom}"/>"#)?;
            writeln!(
                out,
                r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#,
                bottom + 16.0
            )?;
        }
        for (value, label) in y_axis.ticks() {
            let y = y_axis.position(value);
            writeln!(out, r#"<line class="grid" x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}"/>"#)?;
            writeln!(
                out,
                r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{label}</text>"#,
                LEFT - 6.0,
                y + 4.0
            )?;
        }
        let middle = f64::midpoint(LEFT, right);
        writeln!(
            out,
            r#"<text x="{middle:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            HEIGHT - 12.0,
            self.x_axis
        )?;
        let middle = f64::midpoint(TOP, bottom);
        writeln!(
            out,
            r#"<text transform="translate(14 {middle:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
            self.y_axis
        )
    }

    /// The position of the label of each line: beside its end, and not over another.
    fn label_positions(&self, y_axis: &Axis) -> Vec<f64> {
        let ends = self
            .series
            .iter()
            .map(|series| series.points.last().map_or(TOP, |point| y_axis.position(point.1)));
        let mut positions: Vec<(usize, f64)> = ends.enumerate().collect();
        positions.sort_by(|one, other| one.1.total_cmp(&other.1));
        for i in 1..positions.len() {
            positions[i].1 = positions[i].1.max(positions[i - 1].1 + LABEL_DISTANCE);
        }
        // A label that was pushed out below pushes the others up again.
        let mut lowest = HEIGHT - BOTTOM;
        for position in positions.iter_mut().rev() {
            position.1 = position.1.min(lowest);
            lowest = position.1 - LABEL_DISTANCE;
        }
        positions.sort_by_key(|position| position.0);
        positions.into_iter().map(|position| position.1).collect()
    }
}

fn write_series(
    out: &mut impl Write,
    series: &Series,
    label_y: f64,
    x_axis: &Axis,
    y_axis: &Axis,
) -> fmt::Result {
    let known = COLOURS.iter().find(|(name, _)| *name == series.name);
    let colour = known.map_or(OTHER_COLOUR, |(_, colour)| colour);
    let width = if series.name == "turnlock" { 3 } else { 2 };
    let positions: Vec<(f64, f64)> =
        series.points.iter().map(|(x, y)| (x_axis.position(*x), y_axis.position(*y))).collect();
    let path: Vec<String> = positions.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    writeln!(
        out,
        r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="{width}"/>"#,
        path.join(" ")
    )?;
    for (x, y) in &positions {
        writeln!(out, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#)?;
    }
    let (Some((x, y)), label_x) = (positions.last(), WIDTH - RIGHT + 14.0) else { return Ok(()) };
    writeln!(
        out,
        r#"<line x1="{x:.1}" y1="{y:.1}" x2="{:.1}" y2="{label_y:.1}" stroke="{colour}" stroke-dasharray="1 3"/>"#,
        label_x - 3.0
    )?;
    writeln!(
        out,
        r#"<text x="{label_x:.1}" y="{:.1}" style="fill:{colour}">{}</text>"#,
        label_y + 4.0,
        series.name
    )
}
