// libFuzzer: bytes as a JPEG file, into the rewriter and the decoder. The last eight bytes choose
// boxes, sizes and filters.
#include <cstdlib>
#include <cstring>

#include "../trials.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const slip::ScratchPtr scratch = slip::make_scratch();
    std::uint64_t seed = 0;
    if (size < sizeof seed) return 0;
    size -= sizeof seed;
    std::memcpy(&seed, data + size, sizeof seed);
    testing::Random random(seed);
    const testing::Bytes bytes(data, data + size);
    if (!testing::try_file(bytes, random, *scratch).sound) std::abort();
    return 0;
}
