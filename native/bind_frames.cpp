// Frames of another thread, for a sampler.
#include "bind.h"

namespace {

// While a frame of another thread gets its Python object, nothing may run that thread: the frame
// could end, and the object would point to where it was. A collection that starts there runs
// finalizers, which give way to it; so there is none, and all happens in one call.
class WithoutCollections {
  public:
    WithoutCollections() : was_on_(PyGC_Disable()) {}
    WithoutCollections(const WithoutCollections&) = delete;
    ~WithoutCollections() {
        if (was_on_) PyGC_Enable();
    }

  private:
    int was_on_;
};

nb::list frames_of(std::uint64_t thread) {
    const nb::object current = nb::module_::import_("sys").attr("_current_frames");
    const WithoutCollections without;
    nb::list found;
    nb::object frame = current().attr("get")(thread, nb::none());
    while (!frame.is_none()) {
        found.append(nb::make_tuple(frame, frame.attr("f_lineno")));
        frame = frame.attr("f_back");
    }
    return found;
}

}  // namespace

void bind_frames(nb::module_& m) {
    m.def("frames_of", &frames_of, "thread"_a,
          nb::sig("def frames_of(thread: int) -> list[tuple[types.FrameType, int]]"),
          "What a thread is at, frames and their lines, the innermost first; empty where it is "
          "over.");
}
