use std::path::Path;

use crate::arguments::Arguments;
use crate::entrant::Entrant;
use crate::ground::Ground;
use crate::measurement::Measurement;
use crate::player::Trouble;
use crate::results::{Line, Results};
use crate::roster::Roster;
use crate::server::Server;
use crate::spin::Spinners;
use crate::work::{What, Work};
use crate::{report, works};

/// Who needs longer than this for one measurement is measured once, in seconds.
const LONG: f64 = 15.0;

/// A whole run.
pub(crate) struct Course {
    ground: Ground,
    results: Results,
    done: usize,
    planned: usize,
}

/// Who does a work: one entrant in one process or several, or several entrants together.
struct Row<'a> {
    title: String,
    crew: Vec<&'a Entrant>,
    ours: bool,
}

impl Course {
    /// Gathers the participants, measures, and writes what came out. An error is something of ours that failed.
    pub(crate) async fn run(arguments: &Arguments) -> Result<(), String> {
        let bench = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of the benchmark");
        let wanted = works::all(arguments.quick).into_iter().filter(|work| arguments.wants_work(work.id));
        let works: Vec<Work> = wanted.collect();
        if works.is_empty() {
            let known: Vec<&str> = works::HEADINGS.iter().map(|(id, _)| *id).collect();
            return Err(format!("there is no such work; there are: {}", known.join(", ")));
        }
        let roster = Roster::gather(&bench.join("participants"), arguments).await?;
        let server = Server::start().await?;
        let spinners = if arguments.no_spin { Spinners::default() } else { Spinners::start() };
        let results = Results {
            machine: machine(&server).await,
            quick: arguments.quick,
            absent: roster.absent.clone(),
            ..Results::default()
        };
        let plan: Vec<(&Work, Vec<Row<'_>>)> = works.iter().map(|work| (work, rows(work, &roster))).collect();
        let rounds_of = |(work, rows): &(&Work, Vec<Row<'_>>)| {
            rows.iter().map(|row| work.rounds_for(row.ours)).sum::<usize>()
        };
        let planned = plan.iter().map(rounds_of).sum();
        let mut course =
            Self { ground: Ground { server, spinners, quick: arguments.quick }, results, done: 0, planned };
        for (work, rows) in &plan {
            course.measure(work, rows).await;
        }
        report::write(&course.results, arguments, bench)?;
        course.verdict(&roster)
    }

    /// One work: everybody in turn, and again.
    async fn measure(&mut self, work: &Work, rows: &[Row<'_>]) {
        let lease_ms = match &work.what {
            What::Alone { order, .. } | What::Mixed { order, .. } => order.lease_ms,
            What::Hand { .. } => 0,
        };
        let first = self.results.lines.len();
        self.results.lines.extend(rows.iter().map(|row| Line {
            work: work.id.to_owned(),
            size: work.size,
            entrant: row.title.clone(),
            lease_ms,
            runs: Vec::new(),
            word: None,
        }));
        for round in 0..work.rounds.max(work.rounds_of_others) {
            for (row, line) in rows.iter().zip(first..) {
                if round >= work.rounds_for(row.ours) {
                    continue;
                }
                self.done += 1;
                let line = &mut self.results.lines[line];
                let long = !row.ours && line.runs.iter().any(|run| run.whole_seconds > LONG);
                if long || line.word.is_some() {
                    continue;
                }
                eprint!("[{}/{}] {} {}", self.done, self.planned, work.title(), row.title);
                match measure_once(&self.ground, work, row).await {
                    Ok(run) => {
                        eprintln!(": {}", report::glance(work, &run));
                        line.runs.push(run);
                    }
                    Err(Trouble::Cannot(why)) => {
                        eprintln!(" cannot: {why}");
                        line.word = Some(format!("cannot: {why}"));
                    }
                    Err(Trouble::Failed(why)) => {
                        eprintln!(" failed: {why}");
                        line.word = Some(format!("failed: {why}"));
                    }
                }
            }
        }
    }

    /// Whether what is ours did what it must.
    fn verdict(&self, roster: &Roster) -> Result<(), String> {
        let mut faults: Vec<String> = roster
            .absent
            .iter()
            .filter(|(name, _)| crate::entrant::is_ours(name))
            .map(|(name, why)| format!("{name}: {why}"))
            .collect();
        for line in &self.results.lines {
            let ours = roster.find(&line.entrant).is_none_or(Entrant::is_ours);
            if let Some(fault) = line.fault().filter(|_| ours) {
                faults.push(format!("{} {}: {fault}", line.work, line.entrant));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(format!("not as it must be:\n{}", faults.join("\n"))) }
    }
}

/// Who is measured for a work.
fn rows<'a>(work: &Work, roster: &'a Roster) -> Vec<Row<'a>> {
    match &work.what {
        What::Mixed { crew, .. } => {
            let together: Option<Vec<_>> = crew
                .iter()
                .map(|(title, count)| roster.find(title).map(|entrant| (entrant, *count)))
                .collect();
            let Some(together) = together else { return Vec::new() };
            let title = crew.iter().map(|(title, count)| format!("{count} {title}")).collect::<Vec<_>>();
            let crew = together.into_iter().flat_map(|(entrant, count)| vec![entrant; count]).collect();
            vec![Row { title: title.join(" + "), crew, ours: true }]
        }
        what => {
            let processes = if let What::Alone { processes, .. } = what { *processes } else { 1 };
            let entrants = roster.entrants.iter().filter(|entrant| work.admits(entrant));
            entrants
                .map(|entrant| Row {
                    title: entrant.title(),
                    crew: vec![entrant; processes],
                    ours: entrant.is_ours(),
                })
                .collect()
        }
    }
}

async fn measure_once(ground: &Ground, work: &Work, row: &Row<'_>) -> Result<Measurement, Trouble> {
    match &work.what {
        What::Alone { order, .. } | What::Mixed { order, .. } => ground.measure(&row.crew, order).await,
        What::Hand { rounds } => ground.measure_hand(row.crew[0], *rounds).await,
    }
}

/// What it was measured on, in a few words.
async fn machine(server: &Server) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores, Redis {}, no persistence, on the loopback interface", server.version().await)
}
