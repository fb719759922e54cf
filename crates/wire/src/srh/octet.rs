//! Where fields of the SRH lie, in octets from its first (RFC 8754 section 2).

/// Offset of the Next Header field.
pub const NEXT_HEADER: usize = 0;
/// Offset of the Hdr Ext Len field.
pub const HDR_EXT_LEN: usize = 1;
/// Offset of the Routing Type field.
pub const ROUTING_TYPE: usize = 2;
/// Offset of the Segments Left field.
pub const SEGMENTS_LEFT: usize = 3;
/// Offset of the Last Entry field.
pub const LAST_ENTRY: usize = 4;
/// Offset of the Flags field.
pub const FLAGS: usize = 5;
/// Offset of the Tag field.
pub const TAG: usize = 6;
/// Offset of Segment List\[0\].
pub const SEGMENT_LIST: usize = 8;
