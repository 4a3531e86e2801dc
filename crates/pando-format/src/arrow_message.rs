//! Arrow IPC messages, read with care: Arrow's own reader trusts offsets in a message's metadata and panics
//! on wrong ones, so they are checked here first.

use arrow_array::RecordBatch;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::{Block, FieldNode, Message, MetadataVersion, root_as_message};
use arrow_schema::{DataType, Schema, SchemaRef};

use crate::codec::Bad;

const CONTINUATION: [u8; 4] = [0xFF; 4];
const FRAMING: usize = 8;

/// One message of a stream: framing, metadata and body.
pub(crate) struct Framed<'a> {
    pub(crate) bytes: &'a [u8],
    /// Length of framing and metadata.
    pub(crate) meta_len: usize,
}

/// Cuts the next message off a stream; None at its end mark. Returns also what follows.
pub(crate) fn next_message(stream: &[u8]) -> Result<(Option<Framed<'_>>, &[u8]), Bad> {
    const SHORT: Bad = "a message is cut short";
    let (framing, rest) = stream.split_first_chunk::<FRAMING>().ok_or(SHORT)?;
    if framing[..4] != CONTINUATION {
        return Err("a message does not begin with its mark");
    }
    let len = u32::from_le_bytes([framing[4], framing[5], framing[6], framing[7]]) as usize;
    if len == 0 {
        return Ok((None, rest));
    }
    let meta_len = FRAMING + len;
    let body_len = metadata(stream.get(..meta_len).ok_or(SHORT)?)?.bodyLength();
    let body_len = usize::try_from(body_len).map_err(|_| "a message's body has a negative length")?;
    let end = meta_len.checked_add(body_len).filter(|end| *end <= stream.len()).ok_or(SHORT)?;
    let (bytes, rest) = stream.split_at(end);
    Ok((Some(Framed { bytes, meta_len }), rest))
}

fn metadata(framed: &[u8]) -> Result<Message<'_>, Bad> {
    let bytes = framed.get(FRAMING..).ok_or("a message is cut short")?;
    let message = root_as_message(bytes).map_err(|_| "a message's metadata is damaged")?;
    if message.version() == MetadataVersion::V5 { Ok(message) } else { Err("a message has another version") }
}

/// The schema in a schema message.
pub(crate) fn schema(framed: &Framed<'_>) -> Result<Schema, Bad> {
    let message = metadata(&framed.bytes[..framed.meta_len])?;
    let schema = message.header_as_schema().ok_or("a message is not a schema")?;
    try_fb_to_schema(schema).map_err(|_| "a schema is damaged")
}

/// Checks that a record batch has the one layout that a writer of this format gives it: counts that follow
/// from the schema, and buffers one after another at multiples of 64. Only lengths of text are free.
fn check(schema: &Schema, framed: &[u8], meta_len: usize) -> Result<(), Bad> {
    let message = metadata(framed.get(..meta_len).ok_or("a message is cut short")?)?;
    let body_len = (framed.len() - meta_len) as u64;
    if message.bodyLength() != body_len as i64 {
        return Err("a message's body has another length");
    }
    let batch = message.header_as_record_batch().ok_or("a message is not a record batch")?;
    if batch.compression().is_some() || batch.variadicBufferCounts().is_some_and(|counts| !counts.is_empty())
    {
        return Err("a message is compressed or has views");
    }
    let (Some(nodes), Some(buffers)) = (batch.nodes(), batch.buffers()) else {
        return Err("a message has no columns");
    };
    let mut walk = Walk { nodes: nodes.iter(), buffers: buffers.iter(), at: 0, body_len };
    let rows = u64::try_from(batch.length()).map_err(|_| COUNT)?;
    for field in schema.fields() {
        walk.column(field.data_type(), Some(rows))?;
    }
    if walk.nodes.next().is_some() || walk.buffers.next().is_some() || walk.at != body_len {
        return Err("a message has more than its columns");
    }
    Ok(())
}

const COUNT: Bad = "a column's count is not possible";
const PLACE: Bad = "a buffer is not where it should be";

struct Walk<N, B> {
    nodes: N,
    buffers: B,
    at: u64,
    body_len: u64,
}

impl<'a, N: Iterator<Item = &'a FieldNode>, B: Iterator<Item = &'a arrow_ipc::Buffer>> Walk<N, B> {
    /// The next buffer, of the stated length when it is known.
    fn buffer(&mut self, len: Option<u64>) -> Result<(), Bad> {
        let buffer = self.buffers.next().ok_or(PLACE)?;
        let (offset, found) = (buffer.offset(), u64::try_from(buffer.length()).map_err(|_| PLACE)?);
        if offset != self.at as i64 || len.is_some_and(|len| len != found) {
            return Err(PLACE);
        }
        let end = self.at.checked_add(found).and_then(|end| end.checked_next_multiple_of(64));
        self.at = end.filter(|end| *end <= self.body_len).ok_or(PLACE)?;
        Ok(())
    }

    fn column(&mut self, ty: &DataType, rows: Option<u64>) -> Result<(), Bad> {
        let node = self.nodes.next().ok_or(COUNT)?;
        let n = u64::try_from(node.length()).map_err(|_| COUNT)?;
        let nulls = u64::try_from(node.null_count()).map_err(|_| COUNT)?;
        // No array here has more values than its message has bits.
        if rows.is_some_and(|rows| rows != n) || nulls > n || n / 8 > self.body_len {
            return Err(COUNT);
        }
        self.buffer(Some(if nulls == 0 { 0 } else { n.div_ceil(8) }))?;
        match ty {
            DataType::Boolean => self.buffer(Some(n.div_ceil(8))),
            DataType::Float32 => self.buffer(Some(4 * n)),
            DataType::UInt64 | DataType::Int64 | DataType::Float64 | DataType::Timestamp(..) => {
                self.buffer(Some(8 * n))
            }
            DataType::Utf8 | DataType::Binary => {
                self.buffer(Some(4 * (n + 1)))?;
                self.buffer(None)
            }
            DataType::List(item) => {
                self.buffer(Some(4 * (n + 1)))?;
                self.column(item.data_type(), None)
            }
            DataType::FixedSizeList(item, size) => {
                let size = u64::try_from(*size).map_err(|_| COUNT)?;
                self.column(item.data_type(), Some(n.checked_mul(size).ok_or(COUNT)?))
            }
            _ => Err("a column is not of a canonical type"),
        }
    }
}

/// Decodes a record batch of a known schema. Its buffers are copied to aligned memory by the caller.
pub(crate) fn record_batch(
    schema: SchemaRef,
    framed: Buffer,
    meta_len: usize,
    projection: Option<Vec<usize>>,
) -> Result<RecordBatch, String> {
    check(&schema, &framed, meta_len)?;
    let block = Block::new(
        0,
        i32::try_from(meta_len).map_err(|_| "a message is too long")?,
        (framed.len() - meta_len) as i64,
    );
    let mut decoder = FileDecoder::new(schema, MetadataVersion::V5);
    if let Some(projection) = projection {
        decoder = decoder.with_projection(projection);
    }
    let decoded = decoder.read_record_batch(&block, &framed).map_err(|e| e.to_string())?;
    decoded.ok_or_else(|| "a message is empty".into())
}

/// A copy of bytes at the alignment Arrow wants.
pub(crate) fn aligned(bytes: &[u8]) -> Buffer {
    let mut buffer = MutableBuffer::with_capacity(bytes.len());
    buffer.extend_from_slice(bytes);
    buffer.into()
}
