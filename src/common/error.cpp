#include "common/error.hpp"

#include <system_error>

namespace rawduck {

std::string ErrnoText(int error_number) {
    return std::generic_category().message(error_number) + " (errno " + std::to_string(error_number) + ")";
}

} // namespace rawduck
