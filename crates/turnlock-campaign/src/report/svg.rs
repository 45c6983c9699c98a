//! SVG pictures that are readable on light and dark pages, and texts for them.

use std::fmt::Write as _;
use std::time::Duration;

/// The style of all pictures. A page has it once, a picture in a file has its own.
pub(super) const STYLE: &str = "\
svg text { font: 12px system-ui, sans-serif; fill: #57606a; }
svg .strong { font-weight: 600; fill: #24292f; }
svg .page { fill: #ffffff; }
svg .grid { stroke: #8c959f; stroke-opacity: 0.3; }
svg .rule { stroke: #8c959f; }
svg .fault { fill: #d29922; fill-opacity: 0.17; }
svg .fault-bar { fill: #bf8700; }
svg .fault-name { font-size: 11px; fill: #8a5a00; }
svg .stopped { fill: #8c959f; fill-opacity: 0.35; }
svg .shared { fill-opacity: 0.5; }
svg .wait { stroke-width: 1.3; stroke-opacity: 0.8; }
svg .lost { fill: #d1242f; stroke: #ffffff; }
svg .expired { fill: #ffffff; stroke: #57606a; }
svg .cross { fill: none; stroke: #d1242f; stroke-width: 1.5; }
svg .killed { fill: none; stroke: #24292f; stroke-width: 2; }
svg .line { fill: none; stroke: #3e7bd6; stroke-width: 1.5; }
svg .bar { fill: #3e7bd6; }
svg .range { stroke: #3e7bd6; stroke-width: 2; }
svg .mark { stroke: #ffffff; stroke-width: 2; }
svg .p0 { fill: #3e7bd6; } svg .w0 { stroke: #3e7bd6; }
svg .p1 { fill: #1c9d8c; } svg .w1 { stroke: #1c9d8c; }
svg .p2 { fill: #8e5bd0; } svg .w2 { stroke: #8e5bd0; }
svg .p3 { fill: #5a9a2f; } svg .w3 { stroke: #5a9a2f; }
svg .p4 { fill: #d6679a; } svg .w4 { stroke: #d6679a; }
svg .p5 { fill: #4aa8d8; } svg .w5 { stroke: #4aa8d8; }
@media (prefers-color-scheme: dark) {
svg text { fill: #adbac7; }
svg .strong { fill: #e6edf3; }
svg .page { fill: #0d1117; }
svg .fault-name { fill: #e3b341; }
svg .lost { fill: #ff6b6b; stroke: #0d1117; }
svg .cross { stroke: #ff6b6b; }
svg .expired { fill: #0d1117; stroke: #adbac7; }
svg .killed { stroke: #e6edf3; }
svg .mark { stroke: #0d1117; }
}";

/// The number of colours of processes.
pub(super) const COLOURS: u32 = 6;

/// A picture under construction.
#[derive(Debug)]
pub(super) struct Svg {
    pub(super) width: f64,
    pub(super) height: f64,
    body: String,
}

/// Where a text is, relative to its position.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// A rectangle at `x`, `y` with a width and a height. A `tip` is shown by a pointer over it.
    pub(super) fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64), tip: &str) {
        _ = write!(
            self.body,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}""#
        );
        self.close("rect", tip);
    }

    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        _ = writeln!(
            self.body,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    pub(super) fn text(&mut self, class: &str, anchor: Anchor, (x, y): (f64, f64), text: &str) {
        let (anchor, text) = (format!("{anchor:?}").to_lowercase(), escape(text));
        _ = writeln!(
            self.body,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    /// A path around `x`, `y`, in relative commands.
    pub(super) fn mark(&mut self, class: &str, (x, y): (f64, f64), path: &str, tip: &str) {
        _ = write!(self.body, r#"<path class="{class}" d="M{x:.1} {y:.1}{path}""#);
        self.close("path", tip);
    }

    pub(super) fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        _ = writeln!(self.body, r#"<polyline class="{class}" points="{}"/>"#, points.join(" "));
    }

    fn close(&mut self, element: &str, tip: &str) {
        _ = if tip.is_empty() {
            writeln!(self.body, "/>")
        } else {
            writeln!(self.body, "><title>{}</title></{element}>", escape(tip))
        };
    }

    /// The picture as a part of a page that has the [style](STYLE).
    pub(super) fn inline(&self, title: &str) -> String {
        self.document(title, "")
    }

    /// The picture as a file, with a background of its own.
    pub(super) fn file(&self, title: &str) -> String {
        let page = r#"<rect class="page" width="100%" height="100%" rx="6"/>"#;
        self.document(title, &format!("<style>\n{STYLE}\n</style>\n{page}\n"))
    }

    fn document(&self, title: &str, head: &str) -> String {
        let Self { width, height, body } = self;
        let title = escape(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{title}\">\n{head}{body}</svg>\n"
        )
    }
}

/// A diamond, for [`Svg::mark`].
pub(super) const DIAMOND: &str = "m-5 0l5 -5l5 5l-5 5z";

/// A cross, for [`Svg::mark`].
pub(super) const CROSS: &str = "m-3.5 -3.5l7 7m-7 0l7 -7";

/// A linear axis from values to positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) values: (f64, f64),
    pub(super) positions: (f64, f64),
}

impl Axis {
    pub(super) fn at(&self, value: f64) -> f64 {
        let ((first, last), (from, to)) = (self.values, self.positions);
        from + (value - first) / (last - first).max(1e-9) * (to - from)
    }

    /// As [`at`](Self::at), of a time in microseconds, and not beyond the ends.
    pub(super) fn at_time(&self, t: u64) -> f64 {
        self.at(seconds(t)).clamp(self.positions.0, self.positions.1)
    }

    /// About so many round values, and the distance between them.
    pub(super) fn ticks(&self, count: f64) -> (Vec<f64>, f64) {
        let (first, last) = self.values;
        let rough = ((last - first) / count).max(1e-6);
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough).unwrap_or(10.0) * power;
        let mut ticks = Vec::new();
        // Zero without a sign.
        let mut number = (first / step - 1e-9).ceil() + 0.0;
        while number * step <= last + step * 1e-9 {
            ticks.push(number * step);
            number += 1.0;
        }
        (ticks, step)
    }
}

/// Draws vertical lines at round times, and their labels below.
pub(super) fn time_axis(svg: &mut Svg, axis: &Axis, (top, bottom): (f64, f64)) {
    let (ticks, step) = axis.ticks(8.0);
    let decimals = [1.0, 0.1, 0.01, 0.001].iter().position(|least| step >= least * 0.99).unwrap_or(4);
    for tick in ticks {
        let x = axis.at(tick);
        svg.line("grid", (x, top), (x, bottom));
        svg.text("", Anchor::Middle, (x, bottom + 15.0), &format!("{tick:.decimals$} s"));
    }
}

pub(super) fn seconds(t: u64) -> f64 {
    Duration::from_micros(t).as_secs_f64()
}

pub(super) fn float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

/// A time with two or three digits and its unit.
pub(super) fn time_text(t: u64) -> String {
    let ms = seconds(t) * 1e3;
    match t {
        1.. if t.is_multiple_of(1_000_000) => format!("{} s", t / 1_000_000),
        ..10_000 if t.is_multiple_of(1_000) => format!("{} ms", t / 1_000),
        ..1_000 => format!("{ms:.2} ms"),
        1_000..10_000 => format!("{ms:.1} ms"),
        10_000..1_000_000 => format!("{ms:.0} ms"),
        1_000_000..100_000_000 => format!("{:.1} s", ms / 1e3),
        _ => format!("{:.0} s", ms / 1e3),
    }
}

/// A number with commas between thousands.
pub(super) fn number(number: usize) -> String {
    let digits = number.to_string();
    let grouped = digits.chars().enumerate().flat_map(|(index, digit)| {
        let is_start = index > 0 && (digits.len() - index).is_multiple_of(3);
        is_start.then_some(',').into_iter().chain([digit])
    });
    grouped.collect()
}

/// Escapes a text for HTML and SVG. What XML does not allow is replaced.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(character),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ if character.is_control() => out.push('\u{fffd}'),
            _ => out.push(character),
        }
    }
    out
}
