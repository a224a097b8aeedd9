//! zlib's deflate, with the parameters that QEMU uses.

use std::ffi::{c_int, c_void};
use std::mem::size_of;

use super::Compress;
use crate::error::Qcow2Error;

/// QEMU writes qcow2 with a window of 12 bits, without zlib's header.
const WINDOW: c_int = -12;

/// A compressor. zlib remembers the address of its stream, which therefore stays boxed.
pub(super) struct Deflate(Box<libz_sys::z_stream>);

// SAFETY: a z_stream and the state it points to belong to this value alone and have no thread affinity.
unsafe impl Send for Deflate {}

fn empty_stream() -> Box<libz_sys::z_stream> {
    extern "C" fn allocate(_: *mut c_void, items: u32, size: u32) -> *mut c_void {
        // SAFETY: calloc has no preconditions; zlib checks for null.
        unsafe { libc_calloc(items as usize, size as usize) }
    }
    extern "C" fn release(_: *mut c_void, address: *mut c_void) {
        // SAFETY: zlib passes what `allocate` returned, once.
        unsafe { libc_free(address) }
    }
    Box::new(libz_sys::z_stream {
        next_in: std::ptr::null_mut(),
        avail_in: 0,
        total_in: 0,
        next_out: std::ptr::null_mut(),
        avail_out: 0,
        total_out: 0,
        msg: std::ptr::null_mut(),
        state: std::ptr::null_mut(),
        zalloc: allocate,
        zfree: release,
        opaque: std::ptr::null_mut(),
        data_type: 0,
        adler: 0,
        reserved: 0,
    })
}

extern "C" {
    #[link_name = "calloc"]
    fn libc_calloc(items: usize, size: usize) -> *mut c_void;
    #[link_name = "free"]
    fn libc_free(address: *mut c_void);
}

fn attach(
    stream: &mut libz_sys::z_stream,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Qcow2Error> {
    let too_long = |_| Qcow2Error::damaged("a cluster longer than zlib counts");
    // zlib takes its input mutable and never writes to it.
    stream.next_in = input.as_ptr().cast_mut();
    stream.avail_in = u32::try_from(input.len()).map_err(too_long)?;
    stream.next_out = output.as_mut_ptr();
    stream.avail_out = u32::try_from(output.len()).map_err(too_long)?;
    Ok(())
}

impl Deflate {
    pub(super) fn new(level: u8, memory: u8) -> Result<Self, Qcow2Error> {
        let mut stream = empty_stream();
        // SAFETY: the stream is initialised, boxed and handed with its own size; the version string is zlib's own.
        let result = unsafe {
            libz_sys::deflateInit2_(
                &mut *stream,
                c_int::from(level),
                libz_sys::Z_DEFLATED,
                WINDOW,
                c_int::from(memory),
                libz_sys::Z_DEFAULT_STRATEGY,
                libz_sys::zlibVersion(),
                size_of::<libz_sys::z_stream>() as c_int,
            )
        };
        match result {
            libz_sys::Z_OK => Ok(Self(stream)),
            libz_sys::Z_MEM_ERROR => Err(Qcow2Error::Memory),
            _ => Err(Qcow2Error::bad_patch(format!(
                "deflate level {level}, memory {memory}"
            ))),
        }
    }
}

impl Compress for Deflate {
    fn compress(&mut self, cluster: &[u8], out: &mut Vec<u8>) -> Result<bool, Qcow2Error> {
        out.clear();
        out.resize(cluster.len(), 0);
        // SAFETY: the stream was initialised by `new`.
        unsafe { libz_sys::deflateReset(&mut *self.0) };
        attach(&mut self.0, cluster, out)?;
        // SAFETY: input and output are the two live slices just attached, which do not overlap.
        let result = unsafe { libz_sys::deflate(&mut *self.0, libz_sys::Z_FINISH) };
        out.truncate(out.len() - self.0.avail_out as usize);
        Ok(result == libz_sys::Z_STREAM_END && out.len() < cluster.len())
    }
}

impl Drop for Deflate {
    fn drop(&mut self) {
        // SAFETY: the stream was initialised by `new` and is not used after this.
        unsafe { libz_sys::deflateEnd(&mut *self.0) };
    }
}

/// Decompresses a stream; returns its length, or `None` if it does not fill `cluster` exactly.
pub(super) fn inflate(stream: &[u8], cluster: &mut [u8]) -> Result<Option<usize>, Qcow2Error> {
    let mut state = empty_stream();
    attach(&mut state, stream, cluster)?;
    // SAFETY: the stream is initialised, boxed and handed with its own size; the attached slices are live and do not overlap; it is
    // ended before it is dropped.
    let result = unsafe {
        let size = size_of::<libz_sys::z_stream>() as c_int;
        if libz_sys::inflateInit2_(&mut *state, WINDOW, libz_sys::zlibVersion(), size)
            != libz_sys::Z_OK
        {
            return Err(Qcow2Error::Memory);
        }
        let result = libz_sys::inflate(&mut *state, libz_sys::Z_FINISH);
        libz_sys::inflateEnd(&mut *state);
        result
    };
    let whole = result == libz_sys::Z_STREAM_END && state.avail_out == 0;
    Ok(whole.then_some(stream.len() - state.avail_in as usize))
}
