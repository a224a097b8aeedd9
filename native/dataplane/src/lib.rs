//! DiffCache: dataplane.
