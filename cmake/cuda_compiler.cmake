# Looks for a CUDA compiler that works. Where one is found, C++ and CUDA are enabled in the folder
# that includes this, cuda_works is true, and CUDAToolkit and Threads are there.
#
# given_architectures is what CMAKE_CUDA_ARCHITECTURES was given as, empty if it was not. CMake would
# fill it in with the compiler's own default and remember that for every folder and configuration to
# come; as OFF it stays unsaid, and each target says its own.
include(CheckLanguage)

if(NOT DEFINED ENV{CUDACXX} AND NOT CMAKE_CUDA_COMPILER)
  find_program(TUCCL_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
    PATH_SUFFIXES bin)
  if(TUCCL_NVCC)
    set(ENV{CUDACXX} ${TUCCL_NVCC})
  endif()
endif()

set(given_architectures ${CMAKE_CUDA_ARCHITECTURES})
if(NOT given_architectures)
  set(given_architectures "")
  set(CMAKE_CUDA_ARCHITECTURES OFF)
endif()

check_language(CXX)
check_language(CUDA)
set(cuda_works FALSE)
if(CMAKE_CXX_COMPILER AND CMAKE_CUDA_COMPILER)
  enable_language(CXX)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  find_package(Threads REQUIRED)
  set(cuda_works TRUE)
endif()
