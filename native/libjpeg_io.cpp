#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "coefficients.h"
#include "decode_file.h"

extern "C" {
#include <jerror.h>
#include <jpeglib.h>
}

namespace slip {
namespace {

struct ErrorManager {
    jpeg_error_mgr base;
    std::jmp_buf escape;
    char message[JMSG_LENGTH_MAX];
    bool truncated;  // one of the warnings was that the file ends too early
    bool too_many_scans;
};

// Progressive files have about ten scans. A scan of a few bytes can walk over all blocks, so
// thousands of them in one file would take hours.
constexpr int kMostScans = 256;

ErrorManager* manager(j_common_ptr info) { return reinterpret_cast<ErrorManager*>(info->err); }

void on_error(j_common_ptr info) {
    info->err->format_message(info, manager(info)->message);
    std::longjmp(manager(info)->escape, 1);
}

void on_message(j_common_ptr info, int level) {
    if (level >= 0) return;
    if (info->err->msg_code == JWRN_JPEG_EOF) manager(info)->truncated = true;
    if (info->err->num_warnings++ == 0) info->err->format_message(info, manager(info)->message);
}

void set_up(ErrorManager& errors) {
    jpeg_std_error(&errors.base);
    errors.base.error_exit = on_error;
    errors.base.emit_message = on_message;
    errors.message[0] = 0;
    errors.truncated = errors.too_many_scans = false;
}

void on_progress(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
    manager(info)->too_many_scans = true;
    std::snprintf(manager(info)->message, JMSG_LENGTH_MAX, "more than %d scans", kMostScans);
    std::longjmp(manager(info)->escape, 1);
}

// Owns libjpeg's memory, whichever way the work ends.
struct Reader {
    jpeg_decompress_struct info;
    ErrorManager errors;
    jpeg_progress_mgr progress;

    Reader() {
        std::memset(&info, 0, sizeof info);
        set_up(errors);
        info.err = &errors.base;
    }
    Reader(const Reader&) = delete;
    ~Reader() { jpeg_destroy_decompress(&info); }

    // To be called where an error may jump: inside the frame that called setjmp.
    void create() {
        jpeg_create_decompress(&info);
        progress.progress_monitor = on_progress;
        info.progress = &progress;
    }
};

bool all_bits_known(const jpeg_decompress_struct& info) {
    if (!info.progressive_mode || !info.coef_bits) return true;
    for (int c = 0; c < info.num_components; ++c) {
        for (int k = 0; k < DCTSIZE2; ++k) {
            if (info.coef_bits[c][k] != 0) return false;
        }
    }
    return true;
}

// Why a file that libjpeg understands is not rewritten; null if it can be.
const char* obstacle(const jpeg_decompress_struct& info) {
    if (info.data_precision != 8) return "samples are not 8 bits wide";
    if (info.arith_code) return "arithmetic coding";
    if (info.num_components != 1 && info.num_components != 3)
        return "neither gray nor three-component colour";
    if (info.num_components == 3 && info.jpeg_color_space != JCS_YCbCr &&
        info.jpeg_color_space != JCS_RGB) {
        return "colour space is neither YCbCr nor RGB";
    }
    return nullptr;
}

Frame frame_of(const jpeg_decompress_struct& info) {
    Frame frame;
    frame.width = static_cast<int>(info.image_width);
    frame.height = static_cast<int>(info.image_height);
    frame.component_count = info.num_components;
    for (int c = 0; c < info.num_components; ++c) {
        frame.components[c].id = info.comp_info[c].component_id;
        frame.components[c].h = info.comp_info[c].h_samp_factor;
        frame.components[c].v = info.comp_info[c].v_samp_factor;
    }
    return frame;
}

Colour colour_of(const jpeg_decompress_struct& info) {
    if (info.num_components == 1) return Colour::gray;
    return info.jpeg_color_space == JCS_RGB ? Colour::rgb : Colour::ycc;
}

// Lists the pictures behind the first one, which are not kept.
bool is_picture_list(const jpeg_marker_struct& marker) {
    return marker.marker == JPEG_APP0 + 2 && marker.data_length >= 4 &&
           !std::memcmp(marker.data, "MPF", 4);
}

void keep_markers(const jpeg_decompress_struct& info, Bytes& markers) {
    for (jpeg_saved_marker_ptr m = info.marker_list; m; m = m->next) {
        if (is_picture_list(*m)) continue;
        const unsigned length = m->data_length + 2;
        markers.insert(markers.end(),
                       {0xFF, static_cast<std::uint8_t>(m->marker),
                        static_cast<std::uint8_t>(length >> 8), static_cast<std::uint8_t>(length)});
        markers.insert(markers.end(), m->data, m->data + m->data_length);
    }
}

void copy_plane(jpeg_decompress_struct& info, int c, jvirt_barray_ptr source, Plane& plane) {
    const jpeg_component_info& component = info.comp_info[c];
    for (int row = 0; row < plane.height_blocks; ++row) {
        JBLOCKARRAY blocks = info.mem->access_virt_barray(
            reinterpret_cast<j_common_ptr>(&info), source, static_cast<JDIMENSION>(row), 1, FALSE);
        std::memcpy(plane.block(row, 0), blocks[0], sizeof(JBLOCK) * plane.width_blocks);
    }
    for (int k = 0; k < 64; ++k) plane.quant[k] = component.quant_table->quantval[k];
}

// No object with a destructor may live in a frame that longjmp leaves: `out` and `result` belong to
// the caller.
void read_into(Reader& reader, const std::uint8_t* data, std::size_t size, Coefficients& out,
               ReadResult& result) {
    jpeg_decompress_struct& info = reader.info;
    ErrorManager& errors = reader.errors;
    if (setjmp(errors.escape)) {
        result = {errors.too_many_scans ? Status::unsupported : Status::libjpeg, errors.message};
        return;
    }
    reader.create();
    jpeg_mem_src(&info, data, size);
    for (int m = 0; m < 16; ++m) jpeg_save_markers(&info, JPEG_APP0 + m, 0xFFFF);
    jpeg_save_markers(&info, JPEG_COM, 0xFFFF);
    jpeg_read_header(&info, TRUE);
    if (const char* why = obstacle(info)) {
        result = {Status::unsupported, why};
        return;
    }
    out.frame = frame_of(info);
    if (!complete_frame(out.frame)) {
        result = {Status::unsupported, "unusual sampling factors or size"};
        return;
    }
    // Each block takes at least one bit in some scan, so a small file cannot make us allocate much.
    if (out.frame.block_count() / 8 > static_cast<std::int64_t>(size)) {
        result = {Status::dimensions, status_text(Status::dimensions)};
        return;
    }
    jvirt_barray_ptr* arrays = jpeg_read_coefficients(&info);
    if (errors.base.num_warnings > 0) {
        result = {errors.truncated ? Status::jpeg_truncated : Status::unsupported, errors.message};
        return;
    }
    if (!all_bits_known(info)) {
        result = {Status::unsupported, "progressive file without its last scans"};
        return;
    }
    out.colour = colour_of(info);
    out.allocate();
    for (int c = 0; c < info.num_components; ++c) {
        if (!info.comp_info[c].quant_table) {
            result = {Status::unsupported, "a component has no scan"};
            return;
        }
        copy_plane(info, c, arrays[c], out.planes[c]);
    }
    keep_markers(info, out.markers);
    result.trailing_bytes = info.src->bytes_in_buffer;
}

}  // namespace

ReadResult read_coefficients(const std::uint8_t* data, std::size_t size, Coefficients& out) {
    out.markers.clear();
    ReadResult result;
    if (size < 4 || data[0] != 0xFF || data[1] != 0xD8 || data[2] != 0xFF) {
        return {Status::unsupported, "not a JPEG file"};
    }
    Reader reader;
    read_into(reader, data, size, out, result);
    return result;
}

namespace {

void set_parameters(jpeg_compress_struct& info, const Coefficients& source) {
    const Frame& frame = source.frame;
    info.image_width = static_cast<JDIMENSION>(frame.width);
    info.image_height = static_cast<JDIMENSION>(frame.height);
    info.input_components = frame.component_count;
    info.in_color_space = source.colour == Colour::gray  ? JCS_GRAYSCALE
                          : source.colour == Colour::rgb ? JCS_RGB
                                                         : JCS_YCbCr;
#if JPEG_LIB_VERSION >= 70
    info.jpeg_width = info.image_width;
    info.jpeg_height = info.image_height;
    info.min_DCT_h_scaled_size = info.min_DCT_v_scaled_size = DCTSIZE;
#endif
    jpeg_set_defaults(&info);
    jpeg_set_colorspace(&info, info.in_color_space);
    info.optimize_coding = TRUE;
    info.write_JFIF_header = FALSE;
    info.write_Adobe_marker = FALSE;
    for (int c = 0; c < frame.component_count; ++c) {
        jpeg_component_info& component = info.comp_info[c];
        component.component_id = frame.components[c].id;
        component.h_samp_factor = frame.components[c].h;
        component.v_samp_factor = frame.components[c].v;
        component.quant_tbl_no = c;
        if (!info.quant_tbl_ptrs[c]) {
            info.quant_tbl_ptrs[c] = jpeg_alloc_quant_table(reinterpret_cast<j_common_ptr>(&info));
        }
        JQUANT_TBL* table = info.quant_tbl_ptrs[c];
        for (int k = 0; k < 64; ++k) table->quantval[k] = source.planes[c].quant[k];
        for (int earlier = 0; earlier < c; ++earlier) {
            if (source.planes[earlier].quant == source.planes[c].quant) {
                component.quant_tbl_no = earlier;
                break;
            }
        }
        table->sent_table = FALSE;
    }
}

void write_markers(jpeg_compress_struct& info, const Bytes& markers) {
    std::size_t pos = 0;
    while (pos + 4 <= markers.size()) {
        const unsigned length = markers[pos + 2] << 8 | markers[pos + 3];
        if (length < 2 || pos + 2 + length > markers.size()) return;
        jpeg_write_marker(&info, markers[pos + 1], markers.data() + pos + 4, length - 2);
        pos += 2 + length;
    }
}

// See read_into for why this is a function of its own. False: errors.message says why.
bool write_from(jpeg_compress_struct& info, ErrorManager& errors, const Coefficients& source,
                unsigned char** buffer, unsigned long* size) {
    if (setjmp(errors.escape)) {
        // `buffer` may be one that libjpeg has outgrown and freed: this makes it the one in use.
        if (info.dest) info.dest->term_destination(&info);
        return false;
    }
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, buffer, size);
    set_parameters(info, source);
    jvirt_barray_ptr arrays[kMaxComponents];
    const auto common = reinterpret_cast<j_common_ptr>(&info);
    for (int c = 0; c < info.num_components; ++c) {
        const Plane& plane = source.planes[c];
        const int h = source.frame.components[c].h, v = source.frame.components[c].v;
        arrays[c] = info.mem->request_virt_barray(
            common, JPOOL_IMAGE, TRUE,
            static_cast<JDIMENSION>(Frame::ceil_div(plane.width_blocks, h) * h),
            static_cast<JDIMENSION>(Frame::ceil_div(plane.height_blocks, v) * v),
            static_cast<JDIMENSION>(v));
    }
    jpeg_write_coefficients(&info, arrays);
    write_markers(info, source.markers);
    for (int c = 0; c < info.num_components; ++c) {
        const Plane& plane = source.planes[c];
        for (int row = 0; row < plane.height_blocks; ++row) {
            JBLOCKARRAY target = info.mem->access_virt_barray(
                common, arrays[c], static_cast<JDIMENSION>(row), 1, TRUE);
            std::memcpy(target[0], plane.block(row, 0), sizeof(JBLOCK) * plane.width_blocks);
        }
    }
    jpeg_finish_compress(&info);
    return true;
}

}  // namespace

Bytes write_jpeg(const Coefficients& coefficients) {
    jpeg_compress_struct info;
    std::memset(&info, 0, sizeof info);
    ErrorManager errors;
    set_up(errors);
    info.err = &errors.base;
    unsigned char* buffer = nullptr;
    unsigned long size = 0;
    const bool ok = write_from(info, errors, coefficients, &buffer, &size);
    Bytes result;
    if (ok) result.assign(buffer, buffer + size);
    jpeg_destroy_compress(&info);
    std::free(buffer);
    if (!ok) throw std::runtime_error(errors.message);
    return result;
}

namespace {

void decode_into(Reader& reader, const std::uint8_t* data, std::size_t size, Buffer& pixels,
                 FileSize& picture, Status& status) {
    jpeg_decompress_struct& info = reader.info;
    ErrorManager& errors = reader.errors;
    if (setjmp(errors.escape)) {
        status = errors.too_many_scans ? Status::unsupported : Status::libjpeg;
        return;
    }
    reader.create();
    jpeg_mem_src(&info, data, size);
    jpeg_read_header(&info, TRUE);
    if (info.num_components != 1 && info.num_components != 3) {
        status = Status::unsupported;
        return;
    }
    const std::int64_t count = std::int64_t{info.image_width} * info.image_height;
    if (count > kMaxPixels || count / 64 / 8 > static_cast<std::int64_t>(size)) {
        status = count > kMaxPixels ? Status::unsupported : Status::dimensions;
        return;
    }
    info.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info);
    // What libjpeg makes of missing scans depends on its version, too.
    if (!all_bits_known(info)) {
        status = Status::unsupported;
        return;
    }
    picture = {static_cast<int>(info.output_width), static_cast<int>(info.output_height)};
    const std::size_t stride = std::size_t{3} * info.output_width;
    if (!pixels.reserve(stride * info.output_height)) {
        status = Status::memory;
        return;
    }
    while (info.output_scanline < info.output_height) {
        JSAMPROW row = pixels.data() + stride * info.output_scanline;
        jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    // After a warning pixels depend on the version of libjpeg: Pillow shall decide with its own.
    if (errors.base.num_warnings > 0) status = Status::unsupported;
}

}  // namespace

Status decode_file_whole(const std::uint8_t* data, std::size_t size, Buffer& pixels,
                         FileSize& picture) {
    Reader reader;
    Status status = Status::ok;
    decode_into(reader, data, size, pixels, picture, status);
    return status;
}

}  // namespace slip
