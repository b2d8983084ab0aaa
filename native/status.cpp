#include "status.h"

namespace slip {

const char* status_text(Status status) {
    switch (status) {
        case Status::ok: return "ok";
        case Status::unsupported: return "not a picture that the native engine decodes";
        case Status::corrupt: return "damaged data";
        case Status::checksum: return "checksum does not match";
        case Status::box:
            return "crop box is empty or outside the picture, or window outside the crop";
        case Status::memory: return "out of memory";
        case Status::record_magic: return "tile record does not start with TJP1";
        case Status::record_size: return "tile record is shorter than its parts";
        case Status::record_header: return "tile record has an invalid JPEG header";
        case Status::record_segments: return "segment table does not fit the picture";
        case Status::jpeg_header: return "invalid JPEG header";
        case Status::jpeg_truncated: return "JPEG ends too early";
        case Status::huffman_table: return "invalid Huffman table";
        case Status::huffman_code: return "invalid Huffman code";
        case Status::segment_overrun: return "segment ends too early";
        case Status::segment_leftover: return "segment has bytes after its last block";
        case Status::dimensions: return "picture is larger than its data can hold";
        case Status::libjpeg: return "libjpeg cannot decode the file";
    }
    return "unknown status";
}

}  // namespace slip
