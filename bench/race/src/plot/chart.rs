use std::fmt::{self, Write};

use super::axis::Axis;

pub(super) const WIDTH: f64 = 560.0;
pub(super) const HEIGHT: f64 = 400.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 48.0;
/// How far apart the names at the ends of lines are at the least.
const NAME_APART: f64 = 15.0;

/// Who has which colour, whoever else takes part; readable on a light and on a dark ground.
const COLOURS: [(&str, &str); 7] = [
    ("turnlock", "#e5484d"),
    ("floor", "#8b8d98"),
    ("redisson", "#3e7bd6"),
    ("rslock", "#c98a00"),
    ("redsync", "#1c9d8c"),
    ("redis-py", "#8e5bd0"),
    ("node-redlock", "#5a9a2f"),
];
const OTHER_COLOUR: &str = "#b0568f";

/// Lines over two axes of powers of ten.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) across: &'static str,
    pub(super) up: &'static str,
    pub(super) series: Vec<Series>,
}

#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

impl Chart {
    /// Writes it as a part of a picture.
    pub(super) fn write(&self, out: &mut impl Write) -> fmt::Result {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let across = Axis::for_values(points().map(|point| point.0), LEFT, WIDTH - RIGHT);
        let up = Axis::for_values(points().map(|point| point.1), HEIGHT - BOTTOM, TOP);
        self.write_axes(out, &across, &up)?;
        for (series, name_at) in self.series.iter().zip(self.name_places(&up)) {
            write_series(out, series, name_at, &across, &up)?;
        }
        Ok(())
    }

    fn write_axes(&self, out: &mut impl Write, across: &Axis, up: &Axis) -> fmt::Result {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for (value, label) in across.ticks() {
            let x = across.place(value);
            writeln!(out, r#"<line class="grid" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom}"/>"#)?;
            writeln!(
                out,
                r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#,
                bottom + 16.0
            )?;
        }
        for (value, label) in up.ticks() {
            let y = up.place(value);
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
            self.across
        )?;
        let middle = f64::midpoint(TOP, bottom);
        writeln!(
            out,
            r#"<text transform="translate(14 {middle:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
            self.up
        )
    }

    /// Where the name of each line stands: beside its end, and not over another.
    fn name_places(&self, up: &Axis) -> Vec<f64> {
        let ends =
            self.series.iter().map(|series| series.points.last().map_or(TOP, |point| up.place(point.1)));
        let mut places: Vec<(usize, f64)> = ends.enumerate().collect();
        places.sort_by(|one, other| one.1.total_cmp(&other.1));
        for i in 1..places.len() {
            places[i].1 = places[i].1.max(places[i - 1].1 + NAME_APART);
        }
        // What was pushed out below pushes the others up again.
        let mut lowest = HEIGHT - BOTTOM;
        for place in places.iter_mut().rev() {
            place.1 = place.1.min(lowest);
            lowest = place.1 - NAME_APART;
        }
        places.sort_by_key(|place| place.0);
        places.into_iter().map(|place| place.1).collect()
    }
}

fn write_series(
    out: &mut impl Write,
    series: &Series,
    name_at: f64,
    across: &Axis,
    up: &Axis,
) -> fmt::Result {
    let known = COLOURS.iter().find(|(name, _)| *name == series.name);
    let colour = known.map_or(OTHER_COLOUR, |(_, colour)| colour);
    let width = if series.name == "turnlock" { 3 } else { 2 };
    let places: Vec<(f64, f64)> =
        series.points.iter().map(|(x, y)| (across.place(*x), up.place(*y))).collect();
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    writeln!(
        out,
        r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="{width}"/>"#,
        path.join(" ")
    )?;
    for (x, y) in &places {
        writeln!(out, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#)?;
    }
    let (Some((x, y)), name_x) = (places.last(), WIDTH - RIGHT + 14.0) else { return Ok(()) };
    writeln!(
        out,
        r#"<line x1="{x:.1}" y1="{y:.1}" x2="{:.1}" y2="{name_at:.1}" stroke="{colour}" stroke-dasharray="1 3"/>"#,
        name_x - 3.0
    )?;
    writeln!(
        out,
        r#"<text x="{name_x:.1}" y="{:.1}" style="fill:{colour}">{}</text>"#,
        name_at + 4.0,
        series.name
    )
}
