#compdef wirespeed
# Completion of `wirespeed` in zsh. Kept by wirespeed: `wirespeed completion zsh`.

_wirespeed() {
    local program=${(Q)words[1]} line="${(j: :)words[1,CURRENT-1]} $PREFIX" type value says paths
    local -a described plain open
    program=${program/#\~/$HOME}
    whence -p -- "$program" >/dev/null || program=wirespeed
    while IFS=$'\t' read -r type value says; do
        case $type in
        plain)
            if [[ $value == *= ]]; then
                open+=("$value")
            elif [[ -n $says ]]; then
                described+=("${value//:/\\:}:$says")
            else
                plain+=("$value")
            fi
            ;;
        file | dir) paths=$type ;;
        esac
    done < <(_WIRESPEED_COMPLETE=zsh_complete COMP_LINE=$line "$program" 2>/dev/null)
    local found=1
    (( $#described )) && _describe -V 'wirespeed' described && found=0
    (( $#plain )) && compadd -V values -a plain && found=0
    # What ends in = wants a value behind it, not a space.
    (( $#open )) && compadd -V open -S '' -a open && found=0
    if [[ -n $paths ]]; then
        [[ $PREFIX == -*=* ]] && compset -P '*='
        if [[ $paths == dir ]]; then _files -/ && found=0; else _files && found=0; fi
    fi
    return found
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _wirespeed "$@"  # autoloaded from a folder of $fpath
else
    compdef _wirespeed wirespeed
fi
