//! What the other crates have in common and no library offers: numbers as bytes, locks, and files that appear whole.
//!
//! * [`words`], [`varint`], [`hex`]: numbers of fixed and of variable length in bytes, and bytes as digits.
//! * [`locks`]: locks that outlive a panic, and locks that are not held while a thread waits.
//! * [`sync`]: locks, conditions, atomics and threads, which tests try in many schedules.
//! * [`logging`]: where the log lines of daemons go.
//! * [`output`]: files that appear whole or not at all, durably where that is asked for.
//! * [`directory`]: files below a directory that other users may change.

pub mod directory;
pub mod hex;
pub mod locks;
pub mod logging;
pub mod output;
pub mod sync;
pub mod varint;
pub mod words;
