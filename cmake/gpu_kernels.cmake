# The kernels of src/gpu/kernels/kernels.cu as GPUs take them: scripts/make_gpu_kernels.py compiles them by NVRTC, which is
# in the Python environment where requirements-gpu.txt has been installed. No GPU, driver or CUDA toolkit is needed.
# Without NVRTC the build goes on, and a GPU cannot be opened; device="emulated" works all the same. They become part of
# RAWDUCK_KERNELS_TARGET.
option(RAWDUCK_GPU_KERNELS "Compile the kernels for GPUs where NVRTC is installed" ${RAWDUCK_EXTENSION})

set(RAWDUCK_GPU_IMAGES_DIR "${CMAKE_CURRENT_BINARY_DIR}/gpu_kernels")
set(RAWDUCK_GPU_IMAGES "${RAWDUCK_GPU_IMAGES_DIR}/images.cpp")
set(RAWDUCK_GPU_SCRIPT "${PROJECT_SOURCE_DIR}/scripts/make_gpu_kernels.py")
set(RAWDUCK_HAS_NVRTC 1)
if(RAWDUCK_GPU_KERNELS)
  find_package(Python COMPONENTS Interpreter REQUIRED)
  execute_process(COMMAND ${Python_EXECUTABLE} ${RAWDUCK_GPU_SCRIPT} --find
                  OUTPUT_VARIABLE RAWDUCK_NVRTC OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE RAWDUCK_HAS_NVRTC)
endif()
if(RAWDUCK_HAS_NVRTC EQUAL 0)
  message(STATUS "GPU kernels: ${RAWDUCK_NVRTC}")
  file(GLOB_RECURSE RAWDUCK_GPU_KERNEL_SOURCES CONFIGURE_DEPENDS src/gpu/decode/*.hpp src/gpu/columns/*.hpp
       src/gpu/ring/*.hpp src/gpu/kernels/*.hpp src/gpu/kernels/*.cu)
  # One cache for all build trees, by the contents of what is compiled.
  add_custom_command(OUTPUT ${RAWDUCK_GPU_IMAGES}
    COMMAND ${Python_EXECUTABLE} ${RAWDUCK_GPU_SCRIPT} ${RAWDUCK_GPU_IMAGES_DIR}
            --cache ${PROJECT_SOURCE_DIR}/build/gpu_kernels
    DEPENDS ${RAWDUCK_GPU_SCRIPT} ${RAWDUCK_GPU_KERNEL_SOURCES} VERBATIM)
else()
  if(RAWDUCK_GPU_KERNELS)
    message(STATUS "GPU kernels: left out; no NVRTC: pip install --requirement requirements-gpu.txt")
  endif()
  file(WRITE ${RAWDUCK_GPU_IMAGES}.new "#include \"gpu/kernels/images.hpp\"\n\nnamespace rawduck::gpu {\n\n\
std::vector<KernelImage> KernelImages() {\n    return {};\n}\n\n} // namespace rawduck::gpu\n")
  file(COPY_FILE ${RAWDUCK_GPU_IMAGES}.new ${RAWDUCK_GPU_IMAGES} ONLY_IF_DIFFERENT)
endif()
target_sources(${RAWDUCK_KERNELS_TARGET} PRIVATE ${RAWDUCK_GPU_IMAGES})
