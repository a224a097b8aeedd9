//! Locks that outlive a panic, and locks that no thread holds while it waits.
//!
//! Every critical section here leaves its data whole, so that a panic in one makes no data unusable: [`Unpoisoned`].
//!
//! [`ShortLock`] is a mutex for what many objects share: a thread that holds it and waits for a disk, a process or a peer would make all others wait.
//! Calls that may take long say so by [`begin`]; in debug builds one that begins under such a lock panics, and with it the test that made it.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use crate::sync::{thread_local, Condvar, LockResult, Mutex, MutexGuard, PoisonError};

/// What locking, or waiting with a lock, returns even if a thread panicked while it held the lock.
pub trait Unpoisoned {
    /// The guard, or the value inside.
    type Inside;

    /// Returns what is inside, whether or not a thread panicked.
    fn unpoisoned(self) -> Self::Inside;
}

impl<T> Unpoisoned for LockResult<T> {
    type Inside = T;

    fn unpoisoned(self) -> T {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    /// Short locks that this thread holds.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// A mutex that is held for moments only.
#[derive(Debug, Default)]
pub struct ShortLock<T>(Mutex<T>);

/// A short lock that is held.
pub struct ShortGuard<'a, T> {
    guard: MutexGuard<'a, T>,
    held: Held,
}

/// Counts a lock of this thread.
struct Held;

impl Held {
    fn new() -> Held {
        HELD.with(|held| held.set(held.get() + 1));
        Held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.with(|held| held.set(held.get().saturating_sub(1)));
    }
}

impl<T> ShortLock<T> {
    /// Protects a value.
    pub fn new(value: T) -> ShortLock<T> {
        ShortLock(Mutex::new(value))
    }

    /// Locks it.
    pub fn lock(&self) -> ShortGuard<'_, T> {
        let guard = self.0.lock().unpoisoned();
        ShortGuard {
            guard,
            held: Held::new(),
        }
    }

    /// The value, which no other thread can lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unpoisoned()
    }
}

impl<T> ShortGuard<'_, T> {
    /// Releases the lock until a condition is notified, and takes it again.
    pub fn wait(self, condition: &Condvar) -> Self {
        let ShortGuard { guard, held } = self;
        drop(held);
        begin("wait for a condition");
        ShortGuard {
            guard: condition.wait(guard).unpoisoned(),
            held: Held::new(),
        }
    }
}

impl<T> Deref for ShortGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for ShortGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// States that a call begins that may take long: no short lock may be held.
pub fn begin(call: &str) {
    debug_assert!(
        HELD.with(Cell::get) == 0,
        "'{call}' begins under a short lock"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_leaves_a_lock_usable() {
        let lock = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let held = || {
                let _held = lock.lock();
                panic!("on purpose");
            };
            scope.spawn(held).join()
        });
        assert!(panicked.is_err());
        assert_eq!(*lock.lock().unpoisoned(), 1);
    }

    #[test]
    fn a_long_call_without_a_short_lock_begins() {
        let lock = ShortLock::new(1);
        *lock.lock() += 1;
        begin("read");
        assert_eq!(*lock.lock(), 2);
        let held = lock.lock();
        // Of another thread.
        std::thread::scope(|scope| scope.spawn(|| begin("read")).join()).unwrap();
        drop(held);
    }

    #[test]
    fn a_lock_is_free_while_its_holder_waits() {
        let (lock, changed) = (ShortLock::new(false), Condvar::new());
        std::thread::scope(|scope| {
            let mut waiting = lock.lock();
            scope.spawn(|| {
                *lock.lock() = true;
                changed.notify_all();
            });
            while !*waiting {
                waiting = waiting.wait(&changed);
            }
        });
        begin("read");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "'wait for a condition' begins under a short lock")]
    fn a_wait_under_another_short_lock_panics() {
        let (lock, other) = (ShortLock::new(()), ShortLock::new(()));
        let _held = other.lock();
        drop(lock.lock().wait(&Condvar::new()));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "'read' begins under a short lock")]
    fn a_long_call_under_a_short_lock_panics() {
        let lock = ShortLock::new(());
        let _held = lock.lock();
        begin("read");
    }
}
