//! Locks, conditions, atomics and threads of what is tried in many schedules.
//!
//! They are those of the standard library. With the feature `schedules`, which tests alone use, they are those of
//! shuttle: one thread runs at a time, another one may follow at each operation here, and which one does is decided
//! by a seed. So a schedule that breaks a rule is found again. Code between two operations runs undisturbed: what
//! threads share in other ways, as disks and mapped memory, says by [`point`] where another thread may come.
//!
//! Outside of [`explore`], locks of the feature cannot be used; a crate's other tests are left out with it.

use std::time::Duration;

#[cfg(not(feature = "schedules"))]
pub use std::{
    sync::{
        atomic, Arc, Condvar, LockResult, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        RwLockWriteGuard, Weak,
    },
    thread, thread_local,
};

#[cfg(feature = "schedules")]
pub use schedules::{chance, explore};
#[cfg(feature = "schedules")]
pub use shuttle::{
    sync::{
        atomic, Arc, Condvar, LockResult, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        RwLockWriteGuard, Weak,
    },
    thread, thread_local,
};

/// Where another thread may run: nothing, but in schedules.
#[inline]
pub fn point() {
    #[cfg(feature = "schedules")]
    thread::yield_now();
}

/// Starts a thread of a scope, in schedules always.
///
/// # Errors
/// The system has no room for one.
pub fn start_in<'s, T: Send + 's>(
    scope: &'s thread::Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> std::io::Result<thread::ScopedJoinHandle<'s, T>> {
    #[cfg(feature = "schedules")]
    return Ok(scope.spawn(work));
    #[cfg(not(feature = "schedules"))]
    thread::Builder::new().spawn_scoped(scope, work)
}

/// What depends on how long something took; in schedules it is either.
#[inline]
#[must_use]
pub fn measured(found: bool) -> bool {
    #[cfg(feature = "schedules")]
    let found = found ^ schedules::either();
    found
}

/// Waits for a condition of what a lock protects, or until a time is over: `true`. In schedules it is over at once, or
/// never.
pub fn wait_timeout<'a, T>(
    (lock, condition): (&'a Mutex<T>, &Condvar),
    guard: MutexGuard<'a, T>,
    longest: Duration,
) -> (MutexGuard<'a, T>, bool) {
    if cfg!(feature = "schedules") && measured(false) {
        drop(guard);
        point();
        return (whole(lock.lock()), true);
    }
    let (guard, waited) = whole(condition.wait_timeout(guard, longest));
    (guard, waited.timed_out())
}

/// What is locked, whether or not a thread panicked: as [`locks`](crate::locks) has it, which needs this module.
fn whole<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(feature = "schedules")]
mod schedules {
    use shuttle::rand::{thread_rng, Rng};
    use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
    use shuttle::{Config, FailurePersistence, Runner};

    /// Times that a thread whose place changes at random is overtaken, in the schedules that are sorted by that.
    const OVERTAKEN: usize = 3;
    /// Bytes of a thread's stack.
    const STACK: usize = 1 << 20;

    /// Runs a test in as many schedules that are random, and in as many in which threads are overtaken a few times.
    /// `SCHEDULES_RUNS` and `SCHEDULES_SEED` in the environment give other numbers of them and another seed.
    ///
    /// # Panics
    /// The test does in one of them, or its threads wait for one another.
    pub fn explore(runs: usize, test: impl Fn() + Send + Sync + Clone + 'static) {
        let runs = number("SCHEDULES_RUNS", runs as u64) as usize;
        let seed = number("SCHEDULES_SEED", 1);
        run(
            seed,
            RandomScheduler::new_from_seed(seed, runs),
            test.clone(),
        );
        run(
            seed,
            PctScheduler::new_from_seed(seed, OVERTAKEN, runs),
            test,
        );
    }

    fn run(
        seed: u64,
        scheduler: impl Scheduler + 'static,
        test: impl Fn() + Send + Sync + 'static,
    ) {
        let mut config = Config::new();
        config.stack_size = STACK;
        // They are long, and the seed gives the same ones.
        config.failure_persistence = FailurePersistence::None;
        let told = Told(seed);
        Runner::new(scheduler, config).run(test);
        std::mem::forget(told);
    }

    #[allow(clippy::panic)]
    fn number(name: &str, default: u64) -> u64 {
        match std::env::var(name).map(|text| text.parse()) {
            Err(_) => default,
            Ok(Ok(number)) => number,
            Ok(Err(_)) => panic!("{name} is not a number"),
        }
    }

    /// Prints the seed when a panic drops it.
    struct Told(u64);

    impl Drop for Told {
        fn drop(&mut self) {
            eprintln!("repeat these schedules with SCHEDULES_SEED={}", self.0);
        }
    }

    /// A number that the seed gives, another one in each schedule.
    pub fn chance() -> u64 {
        thread_rng().gen()
    }

    pub(super) fn either() -> bool {
        thread_rng().gen()
    }
}
