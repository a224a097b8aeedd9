//! Long jobs: threads, progress reports and cancellation.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::workers::Workers;

/// Called with (bytes done, bytes in total). May be called from any thread of the job, often: rate limiting is the callee's part.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Threads, progress and cancellation of a long job. `Task::default()` uses every core, reports no progress and cannot be cancelled.
#[derive(Clone, Copy, Default)]
pub struct Task<'a> {
    /// Threads to use; 0 means one per core.
    pub threads: usize,
    /// Receives progress reports.
    pub progress: Option<Progress<'a>>,
    /// Set to true to end the job with a `Cancelled` error; checked about every megabyte.
    pub cancel: Option<&'a AtomicBool>,
}

/// The caller stopped the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

impl<'a> Task<'a> {
    /// Returns the number of threads to use for `pieces` independent pieces of work: at least 1.
    pub fn threads_for(&self, pieces: u64) -> usize {
        let wanted = match self.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        };
        wanted
            .min(usize::try_from(pieces).unwrap_or(usize::MAX))
            .max(1)
    }

    /// Fails if the job was cancelled.
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn check(&self) -> Result<(), Cancelled> {
        match self.cancel {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(Cancelled),
            _ => Ok(()),
        }
    }

    /// Returns the same job without its progress report, for a step that would count twice.
    pub fn silent(&self) -> Task<'a> {
        Task {
            progress: None,
            ..*self
        }
    }

    /// Starts counting towards `total` bytes.
    pub fn meter(&self, total: u64) -> Meter<'a> {
        Meter {
            progress: self.progress,
            total,
            done: AtomicU64::new(0),
        }
    }
}

/// Counts bytes done by all threads of one job and reports them.
pub struct Meter<'a> {
    progress: Option<Progress<'a>>,
    total: u64,
    done: AtomicU64,
}

impl Meter<'_> {
    /// Adds `bytes` to those done.
    pub fn add(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Some(progress) = self.progress {
            progress(done.min(self.total), self.total);
        }
    }
}

/// Runs `work(piece)` for every piece in 0..pieces on the task's threads and returns the results in order of piece.
///
/// Pieces are claimed one by one, so uneven ones balance. The first error (by time) stops the others at their next piece.
///
/// # Errors
/// The first error of any piece, or `Cancelled`.
pub fn for_each_piece<T, E, F>(task: &Task<'_>, pieces: u64, work: F) -> Result<Vec<T>, E>
where
    T: Send,
    E: Send + From<Cancelled>,
    F: Fn(u64) -> Result<T, E> + Sync,
{
    for_each_piece_with(task, pieces, || (), |(), piece| work(piece))
}

/// Does the same as `for_each_piece`, with a state of its own (buffers, contexts) for each thread, created by `init`.
///
/// # Errors
/// As `for_each_piece`.
pub fn for_each_piece_with<S, T, E, I, F>(
    task: &Task<'_>,
    pieces: u64,
    init: I,
    work: F,
) -> Result<Vec<T>, E>
where
    T: Send,
    E: Send + From<Cancelled>,
    I: Fn() -> S + Sync,
    F: Fn(&mut S, u64) -> Result<T, E> + Sync,
{
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let run = || -> Result<Vec<(u64, T)>, E> {
        let mut state = init();
        let mut done = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                break;
            }
            let result = task
                .check()
                .map_err(E::from)
                .and_then(|()| work(&mut state, piece));
            match result {
                Ok(value) => done.push((piece, value)),
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(done)
    };
    let threads = task.threads_for(pieces);
    let parts: Vec<Result<Vec<(u64, T)>, E>> = if threads == 1 {
        vec![run()]
    } else {
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
            let mut parts = vec![run()];
            for other in others {
                match other.join() {
                    Ok(part) => parts.push(part),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            parts
        })
    };
    let mut all = Vec::with_capacity(usize::try_from(pieces).unwrap_or(0).min(1 << 20));
    for part in parts {
        all.extend(part?);
    }
    all.sort_unstable_by_key(|(piece, _)| *piece);
    Ok(all.into_iter().map(|(_, value)| value).collect())
}

/// Runs `work(piece)` for every piece on the task's threads and hands the results to `each` on this one, in order of piece, while at most
/// `ahead` pieces that come later are worked on: a pipeline without barriers, whose memory is bounded.
///
/// # Errors
/// The first error in order of piece, of `work` or of `each`, or `Cancelled`. Nothing is begun after it.
pub fn for_each_in_order<J, T, E>(
    task: &Task<'_>,
    pieces: impl IntoIterator<Item = J>,
    ahead: usize,
    work: impl Fn(J) -> Result<T, E> + Sync,
    mut each: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E>
where
    J: Send,
    T: Send,
    E: Send + From<Cancelled>,
{
    let checked = |piece| task.check().map_err(E::from).and_then(|()| work(piece));
    std::thread::scope(|scope| {
        let workers = Workers::start(scope, task.threads_for(ahead as u64), &checked);
        let mut pieces = pieces.into_iter();
        let mut begun = VecDeque::new();
        loop {
            let room = ahead.max(1).saturating_sub(begun.len());
            begun.extend(
                pieces
                    .by_ref()
                    .take(room)
                    .map(|piece| workers.submit(piece)),
            );
            match begun.pop_front() {
                Some(result) => each(result.wait().ok_or(Cancelled)??)?,
                None => return Ok(()),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order() {
        let task = Task {
            threads: 3,
            ..Task::default()
        };
        let squares: Vec<u64> = for_each_piece(&task, 100, |i| Ok::<_, Cancelled>(i * i)).unwrap();
        assert_eq!(squares, (0..100).map(|i| i * i).collect::<Vec<_>>());
    }

    #[test]
    fn pieces_are_worked_on_side_by_side_and_handed_over_in_order() {
        let (begun, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        for threads in [1, 2, 5] {
            let task = Task {
                threads,
                ..Task::default()
            };
            let mut seen = Vec::new();
            for counter in [&begun, &taken] {
                counter.store(0, Ordering::SeqCst);
            }
            let work = |piece: u64| {
                let before = taken.load(Ordering::SeqCst);
                assert!(begun.fetch_add(1, Ordering::SeqCst) < before + 7);
                Ok::<_, Cancelled>(piece * piece)
            };
            for_each_in_order(&task, 0..100, 7, work, |square| {
                taken.fetch_add(1, Ordering::SeqCst);
                seen.push(square);
                Ok(())
            })
            .unwrap();
            assert_eq!(seen, (0..100).map(|i| i * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn nothing_is_begun_after_an_error_of_either_side() {
        let (begun, flag) = (AtomicU64::new(0), AtomicBool::new(false));
        let task = Task {
            threads: 2,
            cancel: Some(&flag),
            ..Task::default()
        };
        let work = |piece: u64| {
            begun.fetch_add(1, Ordering::SeqCst);
            match piece {
                50 => Err(Cancelled),
                _ => Ok(piece),
            }
        };
        let mut last = 0;
        let each = |piece| {
            last = piece;
            Ok(())
        };
        assert!(for_each_in_order(&task, 0.., 4, work, each).is_err());
        assert_eq!(last, 49);
        let refuse = |_| Err(Cancelled);
        begun.store(0, Ordering::SeqCst);
        assert!(for_each_in_order(&task, 0..40, 4, work, refuse).is_err());
        assert!(begun.load(Ordering::SeqCst) <= 4);
        let cancel = |_| {
            flag.store(true, Ordering::SeqCst);
            Ok(())
        };
        begun.store(0, Ordering::SeqCst);
        assert!(for_each_in_order(&task, 0..40, 4, work, cancel).is_err());
        assert!(begun.load(Ordering::SeqCst) <= 5);
    }

    #[test]
    fn a_panic_of_a_worker_ends_the_job() {
        let work = |piece: u64| Ok::<_, Cancelled>([0u8; 3][piece as usize]);
        let job = || for_each_in_order(&Task::default(), 0..9, 4, work, |_| Ok(()));
        assert!(std::panic::catch_unwind(job).is_err());
    }

    #[test]
    fn a_set_flag_stops_the_job() {
        let flag = AtomicBool::new(true);
        let task = Task {
            cancel: Some(&flag),
            ..Task::default()
        };
        assert_eq!(
            for_each_piece(&task, 5, Ok::<u64, Cancelled>),
            Err(Cancelled)
        );
    }

    #[test]
    fn the_meter_reports_sums() {
        let seen = AtomicU64::new(0);
        let report = |done: u64, _total: u64| seen.store(done, Ordering::Relaxed);
        let task = Task {
            progress: Some(&report),
            ..Task::default()
        };
        let meter = task.meter(10);
        meter.add(4);
        meter.add(6);
        assert_eq!(seen.load(Ordering::Relaxed), 10);
    }
}
