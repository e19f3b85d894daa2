# For which GPUs CUDA code is compiled, and under which name its builds are installed.
#
# gpu_architectures is what CMAKE_CUDA_ARCHITECTURES was given as, else what nvidia-smi tells of this
# machine's GPUs; empty where it tells of none.
set(gpu_architectures ${CMAKE_CUDA_ARCHITECTURES})
set(architectures_are_given TRUE)
if(NOT gpu_architectures)
  set(architectures_are_given FALSE)
  execute_process(
    COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE nvidia_smi_failed)
  set(gpu_architectures "")
  if(NOT nvidia_smi_failed)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" gpu_architectures "${capabilities}")
    list(TRANSFORM gpu_architectures REPLACE "\\." "")
    list(REMOVE_DUPLICATES gpu_architectures)
  endif()
endif()

# Sets `architectures` to those that a program is compiled for; empty: it is not compiled.
#
# switch is AUTO, ON or OFF. AUTO compiles where gpu_architectures has any and a CUDA compiler works;
# `tuccl build-executor` does it later elsewhere. ON fails where nothing can be compiled.
macro(choose_architectures name switch least_cuda)
  set(architectures "")
  set(forced FALSE)
  set(problem_level STATUS)
  if(NOT "${switch}" STREQUAL "AUTO" AND "${switch}")
    set(forced TRUE)
    set(problem_level FATAL_ERROR)
  elseif(architectures_are_given)
    set(problem_level WARNING)
  endif()
  if(NOT forced AND NOT "${switch}" STREQUAL "AUTO")
    message(STATUS "${name} is left out, as asked")
  elseif(NOT forced AND NOT gpu_architectures)
    message(STATUS "No GPU here: ${name} is left to `tuccl build-executor`")
  else()
    include(${PROJECT_SOURCE_DIR}/cmake/cuda_compiler.cmake)
    if(NOT cuda_works)
      message(${problem_level} "No CUDA and C++ compiler that work: ${name} is not compiled")
    elseif(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS ${least_cuda})
      message(${problem_level}
        "CUDA ${CMAKE_CUDA_COMPILER_VERSION} is older than ${least_cuda}: ${name} is not compiled")
    else()
      set(architectures ${gpu_architectures})
      if(NOT architectures)
        set(architectures 80 90)
      elseif(NOT architectures_are_given)
        drop_unknown_architectures(${name} ${problem_level})
      endif()
      if(architectures)
        message(STATUS "${name} is compiled for the architectures ${architectures}")
      endif()
    endif()
  endif()
endmacro()

# A GPU that the compiler does not know, being too old or too new, must not cost the installation.
macro(drop_unknown_architectures name level)
  execute_process(
    COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  foreach(architecture IN LISTS gpu_architectures)
    if(NOT "${known}" MATCHES "compute_${architecture}\n")
      message(${level} "CUDA ${CMAKE_CUDA_COMPILER_VERSION} does not compile for architecture "
        "${architecture}: ${name} is made without it")
      list(REMOVE_ITEM architectures ${architecture})
    endif()
  endforeach()
endmacro()

# The folder of a build: HASH+80+90, where HASH is of the sources (ARGN), the headers beside them and
# the lists that name them. probes/nvidia/gpu_programs.py computes the same, and takes no other build.
function(name_build result folder architectures)
  get_filename_component(parent ${folder} DIRECTORY)
  set(names "")
  foreach(source IN LISTS ARGN)
    get_filename_component(source ${source} ABSOLUTE BASE_DIR ${folder})
    get_filename_component(place ${source} DIRECTORY)
    file(GLOB beside ${place}/*.h ${place}/*.cuh ${place}/*.map ${place}/sources.cmake)
    foreach(file IN LISTS source beside)
      file(RELATIVE_PATH name ${parent} ${file})
      list(APPEND names ${name})
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES names)
  list(SORT names)
  set(text "")
  foreach(name IN LISTS names)
    file(SHA256 ${parent}/${name} hash)
    string(APPEND text "${hash}  ${name}\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${parent}/${name})
  endforeach()
  string(SHA256 hash "${text}")
  string(SUBSTRING ${hash} 0 16 hash)
  list(JOIN architectures "+" suffix)
  set(${result} "${hash}+${suffix}" PARENT_SCOPE)
endfunction()
