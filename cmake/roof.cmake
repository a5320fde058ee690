# The roofs of src/roof/roof.h: what bench_ops times beside the ops, and `tegula explain` beside a plan.
set(roof_dir ${PROJECT_SOURCE_DIR}/src/roof)
add_library(tegula_roof_objects OBJECT ${roof_dir}/roof.c ${roof_dir}/array_stack.c)
target_link_libraries(tegula_roof_objects PRIVATE tegula_flags)
set(TEGULA_ROOF_OBJECTS $<TARGET_OBJECTS:tegula_roof_objects>)

# Their kernels are compiled per instruction set, like the ops'.
function(tegula_roof_kernels entry options)
  add_library(roof_kernels_${entry} OBJECT ${roof_dir}/roof_kernels.c)
  target_link_libraries(roof_kernels_${entry} PRIVATE tegula_flags)
  target_compile_definitions(roof_kernels_${entry} PRIVATE TGI_ENTRY=${entry})
  target_compile_options(roof_kernels_${entry} PRIVATE ${options})
  set(TEGULA_ROOF_OBJECTS ${TEGULA_ROOF_OBJECTS} $<TARGET_OBJECTS:roof_kernels_${entry}> PARENT_SCOPE)
endfunction()

tegula_roof_kernels(generic "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_definitions(tegula_roof_objects PRIVATE TGI_HAVE_X86)
  tegula_roof_kernels(avx2 "-march=x86-64-v3")
  tegula_roof_kernels(avx512 "-march=x86-64-v4;-mprefer-vector-width=512")
endif()

add_library(tegula_roof STATIC ${TEGULA_ROOF_OBJECTS})
target_link_libraries(tegula_roof PUBLIC tegula_static)
target_link_libraries(tegula_cli PRIVATE ${TEGULA_ROOF_OBJECTS})
