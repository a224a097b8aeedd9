//! What Python holds of transfers that are under way.

use std::sync::Mutex;

use diffcache_base::locks::Unpoisoned;
use diffcache_dataplane::error::TransferError;
use diffcache_dataplane::fetching::delivery::Progress;
use diffcache_dataplane::fetching::{announcements, claimant, wan};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::errors;

pub fn translate(error: TransferError) -> PyErr {
    let message = error.to_string();
    match error {
        TransferError::File { source, .. } => PyOSError::new_err((source.raw_os_error(), message)),
        error => errors::raise(error.kind(), message),
    }
}

/// A handle on the deliveries that it was given to.
#[pyclass(frozen, module = "diffcache_openstack._native")]
#[derive(Default)]
pub struct Handle(pub wan::Handle);

#[pymethods]
impl Handle {
    #[new]
    pub fn new() -> Handle {
        Handle::default()
    }

    /// End the deliveries, present and future; what has arrived is kept for the next attempt.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// Lift the limits of a fill: no rate, no waiting for requests.
    fn promote(&self) {
        self.0.promote();
    }

    /// Whether cancel() was called.
    #[getter]
    fn cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Whether promote() was called.
    #[getter]
    fn promoted(&self) -> bool {
        self.0.is_promoted()
    }
}

/// An object that arrives at this host by other means than a delivery, until close().
#[pyclass(frozen, module = "diffcache_openstack._native")]
pub struct Expectation {
    pub expectation: Mutex<Option<claimant::Expectation>>,
    /// What an operator may want to know of how it began.
    #[pyo3(get)]
    pub warnings: Vec<String>,
}

#[pymethods]
impl Expectation {
    /// The object has arrived, or will not.
    fn close(&self, py: Python<'_>) {
        let mut guard = self.expectation.lock().unpoisoned();
        let expectation = guard.take();
        drop(guard);
        py.detach(|| drop(expectation));
    }
}

/// What this host has announced of an object, until close() or leave().
#[pyclass(frozen, module = "diffcache_openstack._native")]
pub struct Announcement {
    pub announcement: Mutex<Option<announcements::Announcement>>,
    /// What an operator may want to know of how it began.
    #[pyo3(get)]
    pub warnings: Vec<String>,
}

impl Announcement {
    pub fn take(&self) -> Option<announcements::Announcement> {
        let guard = self.announcement.lock();
        guard.unpoisoned().take()
    }
}

#[pymethods]
impl Announcement {
    /// Take it back.
    fn close(&self, py: Python<'_>) {
        let announcement = self.take();
        py.detach(|| drop(announcement));
    }

    /// Let it expire.
    fn leave(&self, py: Python<'_>) {
        let announcement = self.take();
        py.detach(|| announcement.map(announcements::Announcement::leave));
    }
}

/// Calls a Python function with progress, and keeps what it raises.
pub struct Reporter {
    callback: Option<Py<PyAny>>,
    raised: Mutex<Option<PyErr>>,
}

impl Reporter {
    pub fn new(callback: Option<Py<PyAny>>) -> Reporter {
        Reporter {
            callback,
            raised: Mutex::new(None),
        }
    }

    /// Calls the callback and lets Python handle its signals; false if either raised.
    pub fn report(&self, progress: Progress) -> bool {
        let Progress {
            done,
            total,
            over_wan,
        } = progress;
        Python::attach(|py| {
            let called = match &self.callback {
                Some(callback) => callback.call1(py, (done, total, over_wan)).map(drop),
                None => Ok(()),
            };
            match called.and_then(|()| py.check_signals()) {
                Ok(()) => true,
                Err(error) => {
                    *self.raised.lock().unpoisoned() = Some(error);
                    false
                }
            }
        })
    }

    /// The error to raise: the callback's own, if it is what ended the operation.
    pub fn error(self, error: TransferError) -> PyErr {
        let raised = self.raised.into_inner().unpoisoned();
        raised.unwrap_or_else(|| translate(error))
    }
}
