//! Threads that work beside the one that gives them their jobs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, sync_channel, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::Scope;

use diffcache_base::locks::Unpoisoned;

/// Threads that do the jobs they are given, in order of submission. The caller bounds how many it gives before it takes results. When this
/// is dropped, the threads finish what they are doing, and begin nothing else.
pub struct Workers<J, T> {
    jobs: Sender<(J, SyncSender<T>)>,
    ended: Arc<AtomicBool>,
}

/// A job that was given to workers.
pub struct Submitted<T>(Receiver<T>);

impl<J: Send, T: Send> Workers<J, T> {
    /// Starts threads in a scope, whose end they do not outlive.
    pub fn start<'scope, W>(scope: &'scope Scope<'scope, '_>, threads: usize, work: W) -> Self
    where
        J: 'scope,
        T: 'scope,
        W: Fn(J) -> T + Clone + Send + 'scope,
    {
        let (jobs, queue) = channel::<(J, SyncSender<T>)>();
        let (queue, ended) = (
            Arc::new(Mutex::new(queue)),
            Arc::new(AtomicBool::new(false)),
        );
        // Those that wait for a job wait for the lock, while one of them waits for the queue.
        let next = move || queue.lock().unpoisoned().recv();
        for _ in 0..threads {
            let (next, ended, work) = (next.clone(), Arc::clone(&ended), work.clone());
            scope.spawn(move || {
                while let Ok((job, result)) = next() {
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                    // It fails if the result is not waited for any more.
                    let _ = result.send(work(job));
                }
            });
        }
        Self { jobs, ended }
    }

    /// Gives a job to the next thread that is free.
    pub fn submit(&self, job: J) -> Submitted<T> {
        let (sender, result) = sync_channel(1);
        // It fails if all threads have panicked, which the result says.
        let _ = self.jobs.send((job, sender));
        Submitted(result)
    }
}

impl<J, T> Drop for Workers<J, T> {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

impl<T> Submitted<T> {
    /// Waits for the job's result; `None` if its thread has panicked: then the scope's end does, too.
    pub fn wait(self) -> Option<T> {
        self.0.recv().ok()
    }
}
