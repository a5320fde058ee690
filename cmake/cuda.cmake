# CUDA: which GPUs the build serves, and how kernels in <op>.cu become objects. nvcc is all it needs; without it the
# library is built for the CPU alone.
#
#   TEGULA_CUDA_ARCHS   GPUs to build for: compute capabilities and PTX, such as "8.0 9.0a PTX", or "none"; the
#                       variable of CMake, else that of the environment. Unset:
#                       TORCH_CUDA_ARCH_LIST of the environment, else the GPUs found, else "8.0 9.0a PTX".
#
# Every kernel source is compiled for each entry of the chain. What an entry may use is a matter of its virtual
# architecture (any: compute_75, sm80: compute_80, sm90: compute_90a); machine code is made for every GPU of the list that
# can run the entry.
#
# From 8.0 on `any` stands behind `sm80`, which takes everything: nobody but a test gets there. It has the size of sm80 all
# the same, so the product holds no machine code of it for these GPUs:
# - where the list has PTX, the driver compiles `any` from it, in tests as on GPUs before 8.0 that the list does not name;
# - where the list has neither PTX nor a GPU before 8.0, `any` is spare: compiled for every GPU, for tests and benchmarks
#   (the static library), and left out of libtegula.so.
#
# TEGULA_CUDA_ONCE is for machines without a GPU, where nothing runs a kernel: each entry is compiled for the first GPU of
# the list that can run it, and a spare one not at all: its sources are those of sm80. `make nightly` compiles all of it.
#
# TEGULA_CUDA_QUICK names a file with sources, one a line, that are compiled in an eighth of the time: their machine code is
# slow and spills. For CI, of kernels that are as they were; `make nightly` compiles all of them in full.
set(TEGULA_CUDA_QUICK "" CACHE FILEPATH "A file with the CUDA sources to compile quickly rather than well")
set(cuda_quick "")
if(TEGULA_CUDA_QUICK)
  file(STRINGS ${TEGULA_CUDA_QUICK} cuda_quick)
endif()
set(TEGULA_CUDA_ARCHS "" CACHE STRING "GPUs to build for (\"8.0 9.0a PTX\"), or none")
option(TEGULA_CUDA_ONCE "Compile each entry for one GPU, enough where there is none to run it" OFF)
if(TEGULA_CUDA_ARCHS STREQUAL "" AND DEFINED ENV{TEGULA_CUDA_ARCHS})
  set(TEGULA_CUDA_ARCHS "$ENV{TEGULA_CUDA_ARCHS}")
endif()
set(TEGULA_CUDA_KNOWN 7.5 8.0 8.6 8.7 8.9 9.0 9.0a 10.0 10.0a 10.3 10.3a 12.0 12.0a 12.1 12.1a)

# tegula_cuda_list(<variable> <text> <where it is from>): the words of a list, each one known.
function(tegula_cuda_list variable text source)
  string(REPLACE "+PTX" " PTX" text "${text}")
  string(REGEX MATCHALL "[^ ,;]+" words "${text}")
  list(REMOVE_DUPLICATES words)
  foreach(word IN LISTS words)
    if(NOT word STREQUAL "PTX" AND NOT word IN_LIST TEGULA_CUDA_KNOWN)
      string(JOIN ", " known ${TEGULA_CUDA_KNOWN})
      message(FATAL_ERROR "${source}: expected compute capabilities (${known}) or PTX, got \"${word}\"")
    endif()
  endforeach()
  set(${variable} "${words}" PARENT_SCOPE)
endfunction()

function(tegula_find_gpus variable)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader RESULT_VARIABLE failed
                  OUTPUT_VARIABLE found ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(${variable} "" PARENT_SCOPE)
  if(failed EQUAL 0)
    string(REPLACE "\n" " " found "${found}")
    set(${variable} "${found}" PARENT_SCOPE)
  endif()
endfunction()

set(cuda_archs "")
find_program(TEGULA_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(TEGULA_CUDA_ARCHS STREQUAL "none")
  message(STATUS "CUDA: TEGULA_CUDA_ARCHS is none; building for the CPU only")
elseif(NOT TEGULA_NVCC)
  message(STATUS "CUDA: no nvcc found; building for the CPU only")
else()
  tegula_find_gpus(gpus_found)
  if(TEGULA_CUDA_ARCHS)
    tegula_cuda_list(cuda_archs "${TEGULA_CUDA_ARCHS}" TEGULA_CUDA_ARCHS)
  elseif(NOT "$ENV{TORCH_CUDA_ARCH_LIST}" STREQUAL "")
    tegula_cuda_list(cuda_archs "$ENV{TORCH_CUDA_ARCH_LIST}" TORCH_CUDA_ARCH_LIST)
  elseif(gpus_found)
    tegula_cuda_list(cuda_archs "${gpus_found}" "nvidia-smi")
  else()
    tegula_cuda_list(cuda_archs "8.0 9.0a PTX" default)
  endif()
endif()

# tegula_cuda_codes(<variable> <virtual architecture> <lowest real one> <archs>): -gencode options of an entry; none if no
# GPU of the list can run it.
function(tegula_cuda_codes variable virtual lowest archs)
  set(codes "")
  foreach(arch IN LISTS archs)
    string(REGEX REPLACE "[.a]" "" real "${arch}")
    if(arch STREQUAL "PTX")
      list(APPEND codes -gencode arch=compute_${virtual},code=compute_${virtual})
    elseif(real GREATER_EQUAL lowest)
      list(APPEND codes -gencode arch=compute_${virtual},code=sm_${real})
    endif()
  endforeach()
  set(${variable} "${codes}" PARENT_SCOPE)
endfunction()

set(TEGULA_CUDA_SPARE "")
set(cuda_virtual_all 75) # what no entry has
set(cuda_virtual_any 75)
set(cuda_virtual_sm80 80)
set(cuda_virtual_sm90 90)
set(TEGULA_CUDA_ENTRIES "")
if(cuda_archs)
  get_filename_component(cuda_root ${TEGULA_NVCC} REALPATH)
  get_filename_component(cuda_root ${cuda_root} DIRECTORY)
  find_path(TEGULA_CUDA_INCLUDE cuda_runtime_api.h HINTS ${cuda_root}/.. /usr/local/cuda PATH_SUFFIXES include
                                                         targets/x86_64-linux/include targets/sbsa-linux/include)
  find_library(TEGULA_CUDART libcudart_static.a HINTS ${cuda_root}/.. /usr/local/cuda
               PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib targets/sbsa-linux/lib)
  if(NOT TEGULA_CUDA_INCLUDE OR NOT TEGULA_CUDART)
    message(FATAL_ERROR "CUDA: expected cuda_runtime_api.h and libcudart_static.a beside ${TEGULA_NVCC}, got "
                        "${TEGULA_CUDA_INCLUDE} and ${TEGULA_CUDART}")
  endif()
  string(JOIN " " cuda_archs_text ${cuda_archs})
  message(STATUS "CUDA: ${TEGULA_NVCC}, for ${cuda_archs_text}")
  set(cuda_archs_any ${cuda_archs})
  list(FILTER cuda_archs_any INCLUDE REGEX "^(PTX|7\\..*)$")
  if(NOT cuda_archs_any)
    set(TEGULA_CUDA_SPARE any)
  endif()
  if(NOT "PTX" IN_LIST cuda_archs)
    set(cuda_archs_any ${cuda_archs})
  endif()
  tegula_cuda_codes(cuda_codes_all 75 75 "${cuda_archs}")
  tegula_cuda_codes(cuda_codes_any 75 75 "${cuda_archs_any}")
  tegula_cuda_codes(cuda_codes_sm80 80 80 "${cuda_archs}")
  if(TEGULA_CUDA_ONCE)
    list(SUBLIST cuda_codes_sm80 0 2 cuda_codes_sm80)
    if(TEGULA_CUDA_SPARE)
      set(cuda_codes_any "")
    endif()
  endif()
  set(cuda_codes_sm90 "")
  if("9.0" IN_LIST cuda_archs OR "9.0a" IN_LIST cuda_archs)
    set(cuda_codes_sm90 -gencode arch=compute_90a,code=sm_90a)
  endif()
  foreach(entry IN ITEMS sm90 sm80 any)
    if(cuda_codes_${entry})
      list(APPEND TEGULA_CUDA_ENTRIES ${entry})
    endif()
  endforeach()
endif()

# tegula_cuda_entry(<entry> <sources> <list>): an object of each source for the entry, appended to the list.
# Products and sums are fused where the source says so, as on the CPU: -fmad=false.
function(tegula_cuda_entry entry sources objects)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/cuda_${entry})
  file(MAKE_DIRECTORY ${folder})
  set(errors "")
  if(TEGULA_WARNINGS_AS_ERRORS)
    set(errors -Werror all-warnings)
  endif()
  foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    set(object ${folder}/${name}.o)
    set(compiler ${PROJECT_SOURCE_DIR}/scripts/nvcc_no_spills.sh ${TEGULA_NVCC})
    file(RELATIVE_PATH named ${PROJECT_SOURCE_DIR} ${source})
    if(named IN_LIST cuda_quick)
      set(compiler ${TEGULA_NVCC} --Ofast-compile=max)
    endif()
    add_custom_command(
      OUTPUT ${object}
      COMMAND
        ${compiler} ${cuda_codes_${entry}} -std=c++17 -O3 -fmad=false
        --compress-mode=size --expt-relaxed-constexpr -Xptxas -v ${errors} -Xcompiler
        -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-Wall,-ffp-contract=off -DNDEBUG
        -DTGI_ENTRY=${entry} -DTGI_VIRTUAL=${cuda_virtual_${entry}} -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src -MD -MF ${object}.d -c
        ${source} -o ${object}
      DEPENDS ${source} ${PROJECT_SOURCE_DIR}/scripts/nvcc_no_spills.sh
      DEPFILE ${object}.d
      COMMENT "CUDA ${entry}: ${name}"
      VERBATIM)
    list(APPEND ${objects} ${object})
  endforeach()
  set(${objects} "${${objects}}" PARENT_SCOPE)
endfunction()
