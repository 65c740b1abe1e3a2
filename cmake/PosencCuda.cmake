#[[
Decides whether the CUDA kernels are built: by POSENC_CUDA, the toolkit and torch, never by whether a GPU is visible.
Sets POSENC_WITH_CUDA, and on success enables the language CUDA with CMAKE_CUDA_ARCHITECTURES.
]]

set(POSENC_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO (if toolkit and torch allow it), ON or OFF")
set_property(CACHE POSENC_CUDA PROPERTY STRINGS AUTO ON OFF)

# Turing to Blackwell, and the newest also as PTX so that later GPUs can run it.
set(posenc_default_architectures 75-real 80-real 86-real 89-real 90-real 100-real 120)

set(POSENC_WITH_CUDA OFF)
set(posenc_cuda_problem "")

if(POSENC_CUDA STREQUAL "OFF")
  message(STATUS "posenc: CPU only (POSENC_CUDA=OFF)")
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER AND DEFINED ENV{CUDACXX})
  set(CMAKE_CUDA_COMPILER "$ENV{CUDACXX}")
endif()
find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin NO_CMAKE_SYSTEM_PATH)
set(posenc_nvcc_version "none")
if(CMAKE_CUDA_COMPILER)
  execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --version OUTPUT_VARIABLE posenc_nvcc_output ERROR_QUIET)
  if(posenc_nvcc_output MATCHES "release ([0-9]+\\.[0-9]+)")
    set(posenc_nvcc_version "${CMAKE_MATCH_1}")
  endif()
endif()
set(posenc_torch_cuda "${LibTorch_CUDA_VERSION}")
if(NOT posenc_torch_cuda)
  set(posenc_torch_cuda "none")
endif()
string(REGEX MATCH "^[0-9]+|none" posenc_nvcc_major "${posenc_nvcc_version}")
string(REGEX MATCH "^[0-9]+|none" posenc_torch_major "${posenc_torch_cuda}")

if(posenc_nvcc_version STREQUAL "none")
  set(posenc_cuda_problem "nvcc was not found (PATH, CUDACXX, CUDA_HOME)")
elseif(posenc_torch_cuda STREQUAL "none")
  set(posenc_cuda_problem "torch ${LibTorch_VERSION} was built without CUDA")
elseif(NOT posenc_nvcc_major STREQUAL posenc_torch_major)
  set(posenc_cuda_problem "nvcc and torch differ in the major version of CUDA")
endif()
set(posenc_cuda_remedy "Either install a CUDA ${posenc_torch_major} toolkit and put its nvcc on PATH, or install a torch \
built for CUDA ${posenc_nvcc_major}, or")
if(NOT posenc_cuda_problem AND CMAKE_VERSION VERSION_LESS 3.28)
  set(posenc_cuda_problem "CMake ${CMAKE_VERSION} is too old for CUDA C++20")
  set(posenc_cuda_remedy "Run: pip install \"cmake>=3.28\", or")
endif()

if(posenc_cuda_problem)
  if(POSENC_CUDA STREQUAL "AUTO")
    message(STATUS "posenc: CPU only, since ${posenc_cuda_problem}")
    return()
  endif()
  message(FATAL_ERROR
    "posenc: POSENC_CUDA=ON must find a CUDA toolkit of the major version that torch was built with, but got nvcc \
${posenc_nvcc_version} and torch ${LibTorch_VERSION} with CUDA ${posenc_torch_cuda}: ${posenc_cuda_problem}. \
${posenc_cuda_remedy} build for the CPU alone with -DPOSENC_CUDA=OFF.")
endif()

if(NOT CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})  # CMake reads the variable itself
  set(CMAKE_CUDA_ARCHITECTURES ${posenc_default_architectures})
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # the one torch loads comes with posenc::libtorch_cuda
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
set(POSENC_WITH_CUDA ON)
message(STATUS "posenc: with CUDA ${posenc_nvcc_version} for ${CMAKE_CUDA_ARCHITECTURES}")
