// Payloads of equal size, copied side by side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "status.h"

namespace slip {

// Copies, and checks against `checksum` (CRC-32C) if there is one. Zeros where it does not match.
Status copy_payload(const std::uint8_t* from, std::size_t size, const std::uint32_t* checksum,
                    std::uint8_t* to);

}  // namespace slip
