//! Text traces.

use std::io::{BufRead, Read};

use super::{request, Op, Request, TraceError, Volumes, BATCH, MAX_NAME};

const HEADER: &[u8] = b"time_us,volume,op,offset,length";
// Files that are no traces, such as images, are the likely ones with zero bytes.
const NO_TRACE: &str = "neither text nor what \"diffcache trace pack\" writes";
// Three numbers of 20 digits, the volume's name, and what separates them.
const MAX_LINE: usize = 3 * 20 + MAX_NAME + 16;

/// Position in a text trace.
#[derive(Default)]
pub struct Lines {
    number: u64,
    line: Vec<u8>,
}

impl Lines {
    /// See [`super::Reader::fill`].
    pub fn fill(
        &mut self,
        input: &mut impl BufRead,
        volumes: &mut Volumes,
        batch: &mut Vec<Request>,
    ) -> Result<(), TraceError> {
        while batch.len() < BATCH {
            let available = input.fill_buf()?;
            if available.is_empty() {
                return Ok(());
            }
            // Lines that are whole in the buffer are read where they are.
            let mut used = 0;
            while let Some(end) = find_end(&available[used..]) {
                let line = &available[used..used + end];
                used += end + 1;
                self.number += 1;
                self.take(line, volumes, batch)?;
                if batch.len() == BATCH {
                    break;
                }
            }
            if used > 0 {
                input.consume(used);
            } else if !self.split_line(input, volumes, batch)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads a line that the buffer has only a part of; false at the end.
    fn split_line(
        &mut self,
        input: &mut impl BufRead,
        volumes: &mut Volumes,
        batch: &mut Vec<Request>,
    ) -> Result<bool, TraceError> {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        input
            .by_ref()
            .take(MAX_LINE as u64 + 1)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(false);
        }
        self.number += 1;
        self.take(line.strip_suffix(b"\n").unwrap_or(&line), volumes, batch)?;
        self.line = line;
        Ok(true)
    }

    fn take(
        &self,
        line: &[u8],
        volumes: &mut Volumes,
        batch: &mut Vec<Request>,
    ) -> Result<(), TraceError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || self.number == 1 && line == HEADER {
            return Ok(());
        }
        let found = parse(line, volumes).map_err(|reason| TraceError::Line {
            line: self.number,
            reason: match line.contains(&0) {
                true => NO_TRACE.into(),
                false => reason,
            },
        })?;
        batch.push(found);
        Ok(())
    }
}

fn find_end(bytes: &[u8]) -> Option<usize> {
    // Lines are short: a search that begins at once is faster than a wide one.
    bytes.iter().position(|&byte| byte == b'\n')
}

fn parse(line: &[u8], volumes: &mut Volumes) -> Result<Request, String> {
    if line.len() > MAX_LINE {
        return Err(format!("the line is longer than {MAX_LINE} bytes"));
    }
    let mut fields = line.split(|&byte| byte == b',');
    let mut field = || fields.next().ok_or_else(columns);
    let time_us = number("time_us", field()?)?;
    let volume = field()?;
    let op = match field()? {
        b"r" | b"R" => Op::Read,
        b"w" | b"W" => Op::Write,
        other => return Err(format!("the operation {} is neither r nor w", show(other))),
    };
    let offset = number("offset", field()?)?;
    let length = number("length", field()?)?;
    if fields.next().is_some() {
        return Err(columns());
    }
    let volume = volumes.number(volume)?;
    request(time_us, volume, op, offset, length)
}

fn columns() -> String {
    "a request is time_us,volume,op,offset,length".into()
}

fn number(name: &str, digits: &[u8]) -> Result<u64, String> {
    let mut value: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        value = match value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u64::from(digit)))
        {
            Some(value) if digit < 10 => value,
            _ => return Err(not_a_number(name, digits)),
        };
    }
    if digits.is_empty() {
        return Err(not_a_number(name, digits));
    }
    Ok(value)
}

fn not_a_number(name: &str, digits: &[u8]) -> String {
    format!("{name} {} is not a whole number below 2^64", show(digits))
}

/// Returns a field for a message: quoted, short, and without control characters.
fn show(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(&field[..field.len().min(40)]);
    format!("{text:?}")
}
