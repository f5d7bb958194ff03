// unicode_tables.h -- what unicode.cpp knows of the code points: classes of Unicode 16.0.0, and NFC's of 9.0.
// Written by tools/make_unicode.py: change that.
//
// Numbers have digits of base 18, '#' to '4', and a last one of base 74, '5' to '~'. Line feeds count for nothing.
#pragma once

// Where the class changes: code points since the change before * 4 + the class from there on.
static constexpr char class_steps[] = R"(
\I$69s]R$SN$S`9$V9Z9S=:9C:9;A:$G:$g:$)mFenIR9:9)~I:=>E:9N9:A:9:$;:'Y:*[V+}:%9>9N%E&t$WFE%V%M$A]F=:(O:9r=R?^A>9v9:$c$`'q
b9o^$oZ=F9J$CF9Z9B9$H$ORaJ$K:Mz%I&@%yB9~9R]G]:uFU>=>$C:Q:9BEB9v9j=:AG^=?M>9VMF=>$C:Q:=:=:=$hE:9S]>AvY:A:$C:Q:=:IB9~9r=G
]Z9bU>=>$C:Q:=:IB9$d=:AG]:;Mb9:MBA:EB=:9:=B=BABe$D9$Ai~U:A:$G:uB9$TA>9>=G]WQ:9FU:A:$G:]:IB9$h=:=G]:=zY:A:%E>9v9JA;RAG$7
:MJ}B$K:Y:9>Q$i]z%a:=fQ[]%>=:9:I:$K:9:]:=Z9>I:9[]>E$l9$i$;fU:${$XI)F%M$<;]NMFEB9B=RAFif9;]N%9:9J9>%M:$#5:E>Q:9:E>%E:E>$
o:E>Q:9:E>q:&;:E>&co$;Buv'e>MB$2[>|:$SJ'9CBUR}j$7n}ni:Ar%q$x9F9C]O]$E]N'qRI>$s:9J&o^$g%?^$c>Ib%QF$SOa%6$GZ%u%O]O]j9(8%]
zUC]%F$cj?^%Q$T${$]]BC^${>aJ%M>A%FE:M:=B9J-Q&X27>M>%9>M>U:9:9:9:$g>%u:Q:9BA:QBE>MFiJA:QDa$b=L9%`9w:9?MJ;]Ni(X9F9>]:9BIN
9:9:9:E:a>EJIF9;%n?I%&I&G'G$C$3;$c&*D/QNEB=[9>%9:9J9>&7R9v$GZQ:Q:Q:Q:Q:Q:Q:Q'N9$*>9F?9$QYRI?B=F'eNA:'u:EJ%M:(;CE^$k%bu$
m]$eU;q$m]%?q4L$$1M&X&/,g&d%Y>1]Bw^=$<%]v$g>&q]%>Y>(_>&c>=:9:U$@u:A:E:$GkM^%qn%i$]]$LMB9:=;^$[^$G$P$_R%]$\;]NI:_^I:%E$H
A:UG]N$GB9B%i:9B=>I>9:9$LA>aRAfM>M>MZQ:Q:%M:mN)Ek]N$2,wf$GF%e$*)v$$o>(k%:QfIJ9:]:i:I:9:=:=:(s$p$$c~&W>%y%Be)JI:*K$9]R$S
N$Sb'qBM>M>M>A$xe:$S:$7:=:q>m$t)eg%Ug&;{=0D$_B%ew$WF$mEZ$=:W9J%9^$c>${FU;I%J+]?]N${F${F%AV%qfa:q:Q:=:a:q:Q:=B%qf3qZ$C^U
$LM:%I:Y&lM>9:%Q:=B9>$G?V$G?R$gWY%b$7:=KJ$EMF$S&p&7G>?u?%Z9rE:A:$__Y$H$a=:$aA$lU:$[OIv%y^$C?V$7KV}$IQ'N&{%~%mj%mSN${g]O
^$[Z$G.q$g:%IN=vA&D$a^9V$CcE$X}%Z$AQ$<$Gf%u$U$c:=>9j%U$l$OS]Z${s]F9>9V$wB9f%anEc^9:9G$;b}:$O$8=&TQ:9:E:q:]R%]{]bU>=>$C:
Q:=:IB9~9fI$d]:9>9:%9:9$P9:9%R%u~EK]JA$d%a$<=:9W]+~%]%FE$|%a$<9c]%:%Mj9S]O$;$\$W$AeFQ-6%Q)J&Y$7fU>9>U:=:$Kr9:9o]&pU>%=v
9:9$\9^%AR9$@9b%Y$89~&{-n$os]NY:%5z9s$_J$c):Q:=:%9$@9[]NM:=:$kn9S]3n$7r9:i:$s$]]'f9s$?%N%0s(])5z-a*3Z(Gr&&{zM$P.4{J$0[$
%,p$c$5](&l$/mR$g;]N'I;]N$c~%avEg];Q:$?J$7$(P%UC]-j&Y$G(h'9J9&`i&X=:9$\$#*gV&/y%F]$+1~E:Q:=:2kr9$`A>9nEV$&S)3n(oJiBYR]/
-;]'*y$;g$;(u$O*L'a:&s:=>9>=>E:e:9:Q:&[:E>U:Q:$[:E:I:9BQ:$#Q>$O:$O:$g:$O:$g:$O:$g:$O:$g:$O:U?%i()v$gNM1>&O*x%U^Q?]F94P$
c~%QG]$*T$[G].`$c>;]$+FQ:E:=:q:-e?Y%b&gR9G]%)o&C;A;E'?%U;q-ZE:$W:=:9>9:]:E:9:9N9F9:9:9:A:=:9>9:9:9:9:9:=:9>E:Q:E:E:9:]:
yJA:I:y$0Qi+)g]&$h*%(C$l/+]N/5>4(Wn$'*{r$2c**L$.K',T11}J/-a)";
// The same of the combining classes, * 64; they are numbered in their order.
static constexpr char combining_steps[] = R"(
%#3w$#t$X'@$V$X'v%N'6%N,\'z'?*e$]$X&I&D$k$]&D'?$^$X%S$_$`%U$`%U$].G0'['M/0p$]':$]&E$X$](p(u%N$]%O$\$]z{|}~$5$6$7$8$9$z$
;$<u$=u$>$?u$]$Xu$8u&+{*H$E$Fu%(q$B$C$D$E$F$G$H$]%N%S'z$]%Nu1Gu'37)9%S':$]u%S$k$X$]%Nu$/hu$+c$X$]%N$]%N&I$X%S$X$]&D$]$X
$]$X$]$X$]$k*09)f$]u$/;&W$]*o$]%a$]'M%$p%a(1W/=$X$]%N$]%N$]&D%w$B$C$]&D$]%N%S'M%2yu0wu&I$X$]$k'4=u0wu((Au0wu((Au0wu((Au
0wu)$wu)$wu)Y$Lu'2Qu0wu)$wu(4Ku('k$ou.j&W(&w$k/b&W&/N$k$(|u$Xu$Vu%/;$Ru$Su't&W%Hu$]$ou$]$k&#Fu()wuy$k&4\u$3-[%a%,,{u$+u
u*,su,Mu,1Fu)3K$]$Xu--;$Xu&*Wu4})y%Nu%)C'z(u%Nu(/;u07u$2]$X$])9%-m$k%1Cu,_$k&&}u*)?%av$X(5%N'?uv)9':u(uu&I$k,,y%N$])f$]
%V$U$X$T$]$15(5$_$X$]$Xu$3.Q$l%S&X&I$k'?u%b%S$X$]v%N'?u+&,q%a)15u'.i$,g$+.k$\$^$Y$Z$k(#t$k'+,)Wu'?+e$-O$k&2u$k0'mu,$[u$
)72_%0x%a$19u'-Cu-Uu.,Qu$]%Nu%S$k(5$k$]u%,7u.1qu&#%#ru%#4m)f)k$k%-1>u-3:u*&]'M'+2Lu$]u$4Iv$Xu&[u*4Q$Xu&/$Gu%/Yu%0Owu&)O
%a%(_$k%4eu&.ou*qu($kwu+,}yu&3;u0wu$&U)9&I'M,2Ou%cu(3Uwu/$?wu)$7u(/=wu(,[u&+*[u%402t'M%2i)9&$.'zu1&,z$l%a&G$V'M*\)y%S'z
$k$+c&W*%g%a,)3g)9$]1i%S)9$]$k$]'M(3)^)9('{(Eu)";
// What code points are composed of. A group: the second part, or 0 where there is none; 2 * the group's length, + 1 if
// NFC does not compose them again. Then of each the step from the last code point and from the last first part (2 * n,
// or -2 * n - 1). Without a second part they stand side by side, and only the first has a step.
static constexpr char decompositions[] = R"(
5:.G$%m758.J$&I58.{$#s58/;$a58/D'{58)#n$*S58)#p$*U58)#r$*W58)#t$*Y58)#v$+I58)#x$+K58)#z$+M58)$n$)Q58)$q$*m58)$|$)U58)$~
$)W58)%<$)e58)%D$)Y58)%L$*[58)%T$)a5:)%W$)O$&l58)%b$)]58)%d$)c58)%f'u5:)%i/(W758))g$*M5:))k%7&K5:)0d$#+M75*L%.2S%43a1)H
2(c0v.,L/,h%&U$.$u5$,#N$&/y$(&>$*}&)9*2Y&,7%-]-G+a%3[11j$&U$*w$%w)(I($A&(5$-4x$3G,$5%09*/u,&e$)3P*%k+*S$)s12<.3w%*U22|&
&U%*m%%].+M$*$f2A*})2s%(y%1;$2Y&+}%(e%M%3S&-;$.M4a1)|)_$-_%)c(2Q'*U*-6$$&h%)[.(?$-Y(*b%+M*/A&3c$(2p$)Y('k$+?+O(*k*?,'a$
*3r4-O43~T2+y$*?%)w*%='&p2.\%0q//E$()V('e$-s*+c0E0&d1-A22J)%=)0r.1k%1h,$k23F$0u.0}($w%+?.3801q0,F&.~/'k/#N)1{12t$#w%a+0
C*2?%%I&'7%/O$)%t,5$4y%$u%.Q&3k&,W-4I$1o$-w$Y$.(D*0]$1W01[$#1\$&[&7$#5'#w1u$'Y%#O$-q4A(.q&3h'(]$&q$*$<&o1]-17,&w0C32`+=
$)Q&%k))a&)n1#~&$y$3=/c3Y*,['{'(U'e)39$1y%E(c$,2|3&],'E$3i$%/Z*#~3=''e%C&-i$/[%4{$/q(.w'*_(1G$&3Z$#(g$+#6+#y&G%#i,Q%$],
;$&G$1?-+y$,'r)*y$%$o$,#R'4W)+O/19$#(X.y%.E'*?0+?$+'~0?&&g&/}+[,O$.M%0M/u&/O&-aY&*i$4C$*4|--?-'>.*Y$$G)/I)*I%&W2o$&%l%)
y*0A%0D%K-5&0z1v-(9$((F$%%}$#1x$P'2M$-w,4}/1Z)0m%+P2-S%.|()w'3H3*^(&x$0?58%/$;$24K58%/$=%&)u5J%/$@$0+U/1Q$*;3yyC$?.+7-&
~$%k58%/$K%2,c58%/$M%4*[5:%/$P&$*s(M5$t%/$U&'1?O$C$0W'3p%'W$,(X+W%m-Ik%{2w%s%e/m%q$*sI$-i(k$7%i$(I&}'k0[$3E'S*?2w(=0a$/
g'gK6EAC$K7'q$m+c2G_$[+G&}0C&o5/y$1g&c,q$[.;$U$#]&[%-?*g$c$&*v-(+C,-,V5%v%/%Q$/#i$)c%:0B/G$a+s$Q$#G$z$s$}4;%S&yU*K(O$*O
C&w$s+;&C$v&c$F&{$o-q%Q$W*7*k'S=$a$-c$m-_.;T%O)q,;%*9%$f&K&M+s'7$U)=9'cWg%MH-i0=*M(9)9'?+y(Q$'s'G$)Y/M$uU+7$]$D$W:V%9%C
-M2?+Y*}(}$,s%o&=&a}M$K$$e$0S+)3y@'+7-01d$05w.(0W'#s0$M-')8%751f+%$C$/$M>G,(%w,'0>%=O$y&Gs%=d-28,34[,(48CU[,(+C,3,8.#U$
7,(+u,(+`O$$f$$wG/(+U/()hQ.&b.(?K$C?.(J.*W9kaK7W$OEGgI955,).A+0+x.#D_,)3},)3dA_'=%lUu$_%Ii$qUw5_YES,C*N*Q(N{$/b%.m*n$7g
&Z'[6&M,+0[,+.b?S]E$k,,%q$o,,#t$IM%>&s0.RQ02S$W5,,._,,*|_SM,,2m,,2TC$'s$':1$T1&=Q%E$P,-/{,-+6,-+;,-)x:W%k71+r1,_$A_$C1.
<-+#G-*4\1/M;;]/*'Q/*%|,.1k5+3)X0*H510P-1+_$#%=-40^G11`12u$QIy&g2$lp2&;,/-y,/,\&Y=98$G]}PK$I]=iK$o%I{&O,0&C,0&h$l%yk%c,
0(Q,0&h%Zl23~3'C_s$63%v3+ko,1(?,1$x*Y'j3-p3/m30D|+/y;+'C%h-#O$()t0,s=A$eJ,14k-03T4&E&@(]$Q,119,10p%~)c4+^4,q%c$y(?,11_,
10B44\$#$U,2*G,2(t$#$N$#%A$Ek7,23E.)@.,=,22B,3,O,3)JQ%l'k$;$]$V$;SO,3&a,3(n)o$i$#3b$$$?<,3)e,3/D-;,3({$K,3't&=j:$$*\$$+
q$Q@$W+.+Y+.'P,31=,3.l,4%c,33rOk,41=,4/p_-#%Q)7-#%DW$%(p$%)[$%)B5$%-___]$u$%.T$%0u-$$K-$#`-$&;-$$j,%-_,%)F-%#_c&o.($>M$
&%5-%&]6$9i-%'>75$A$&%~$&'m$&'R%A.)(a-%3:$g$k$&+r.)4a-&(6-&+A$A-&*n%Y$&1\$&3sI?-'&Q+;5-'*@$&2r.+/7-'+N;$'%l.+3o-')t$')d
$'*G>o-(+]-((t$'*z$'-e$a$q$'/f.-/es.-/X.-3U-(1R-(4?-(3R%kK-))[$}-))6-),c-),B,(&I--+`$(*=%C$(*r$(,U11b.&19Q$%#hG,'/:;('=
$-3J$(35@Y$#*Z$#+99I$=-*/m-*/n$[$w%5&j'A$?&7*6&E9U-*/u+O'8.1#x$),G9{--%q--#h-+'m.12l=.2$G*q.2+n$)45MK9$kv&c$B';%B$qk$*'
V$*)yu$*)t$*,U;-,39-,/xC$*.D$*.}$1)v/)3c'}/#'|G$+$U%;'G(Y--17--.ha%U%Y-.(g%,1Z+$)vR$S+$.o+$(b%i-0&Wk-//n%[u-0#;-/4p*i'K
7%X-Km-0/S-0%J$.&^$.'m-0.S/)0|$.,q$&3r$'$U-1,w(m/+)PE$.0c-2({/+4z/,&k-2+^5q-22]-2-\$.2X$.4S&Sk$c$/#|/.(k-32J+A(=$/1ns$/
3q.#%7/0#\/0%7*A&].#(6$0(@$0)s?CIC$5.$*M-Q%I%a$m==9=;A<A<M==9=;A<A&9%o6uQ'h6u*6$*IB;xoB;'3|$&n67p$]67d)d6uZ%76u>u67D$\6
uF`6u>'e67BQ67<,H6uD.0E67<C67<C67<C67<C67<C67<C67<C67<C67<C67<C67=E<C67<C67:-.n7=79797A7A7=s$ZC=798-1q:-0T=$L8-3W:-2<=$
68$%f@$%[7I-R&A%b$m==9=;A<A8=9E==9=;A<A8=>$V6ugb6u>p6uEl6u:r6uSf6u$H%e6uQ'v6u:%]6u6r6u6P6u(I%@6$%?7=69697A7A6=6wQf6=696
96YQL6A6=:Ge$m>C|g>C'3q$(t6uB$A67L$r6u6'T6uBp6uB%q6u:%O676)r6uX)i67>*R6uV%76u>u67D$\6uF`6u>'e67BQ67P.'q67<C67<C67<C67<C
67<C67<C67<C67<C67<C67<C67=E<C67<C67$L%ME$i-R8.K$%}-Su%c$m==9=;A<A<M==9=;A<AB$N6uHl6u<r6uDp6u\b6uLl6u6p6u(-fr6uP.-a67Nc
67F[67-Tm%d$mCO97CYCO97h$66ut\6u(-`r6ub%96u>u67<(>6u<%k6uF`6u>'e67BQ67>,H6u-U$C&W$m6uFl6uLl6uVh6uRh6u$U%o6u=$Z6u6+i676,
\6u>*767r*X6u6v6u8+W676/h6u,J$*96u@^6u'2@$,^6uL.+G67X{67'a-'X=tM$;=t=$C=t-Wu&Y$m6uFl6u>p6uBp6uVh6uRh6u,<$*W@JUuZK$N$D6u
C$66u:j6u'2T1B67%:-3{67&P-)P=tM$;=t=$C=t-X$G&a$q6u@p6u>p6uDp$6W6u%K$\6u<X6u()H$D6u<p6uHp6u8p6uRj6u8r6uFp6u6p6u<r6u8)G67
6?676.%g676.,|6uPn6u8r6u8r6uA*;-Y$W%e$m<=9=<A;A=M<=9=<A;A8=$dt*a$'Y6MT]6M>Ob$q;R$5$I;w$f$v6u<']676(H6u6r6u:r6u6h6u8'a67
6(:6u8$>6u8l6u8l6u'2<$,l6u\%{6u`&A67>*V6u<r6u?<-Ze(2}$m6u:%c6u>u67<(>6u<%k6u:'N6u:h6u:%k6u>'e67<+|6u:+Y67>,H6u-[A%f$mUu
$tL6u(-v969-\A']%?6uTh6u/>$*W6u-]$5&c$q6u6r6u@r6uWf6u>p6uEl6u<r6u8r6uMh6u$:$\6u6d6u6h6u6h6u:%o6uA'v6u6l6u:+}6(y61xcx6u-
`Q)y$m6u8l6u8l6u8h6u8n6u8n6u+F$,e67-bM){$m6u8l6u8l6u8h6u8n6u8n6u-dQ(4G$*]=t=}=t=y=t=y=t=$7=t=$7E==t$ge-eU(4H$*]=t=}=t=y
=t=y=t=$7=t=$7=t=}=t$ge<t-l=(c%?6uCh6u-t$?(0s$o6u<p6uLl6uBn6u8r6u@r6u8r6uHl6u<r6u>r6uFp6u>r6u>n6uB$\6uLl6uFl6u6h6uJ+G67
6+|6u@+Y678,H6u-u9(2M%K6u-v9(0o$m6u-w=*G%G6u6r6u-xa%h$qUupl6uHl6u9r6u>p6uEl6u<r6u8r6u%f$H6u()\v6uLl6u-yI&[$m6uHl6uJl6ux
\6u$b$66u-~M(17$s6u:r6uXf6uBp6uZh6u:r6u.59(1O${6u.7A(1?$u6uFl6u|\6u.8W(0u$o6u<p6uZf6u:r6uBp6uJl6uDp6uZh6u6X.?$C)+G/3E69
H9T$c6=68j$M:?8;Me79Pc8C897;L0$\70%E@\60$h6960%I678O678;67<;678C678;67Xk6A6769f$H676]67<u676767.?8+'I3+_.Io(4M.3Y67<C67
Lc67<C67<C67<C67Lc67=E<C67<C67|-.n@$%~:$&A>-0{<-0v6W=-2?<-2H6AD8.L$i)#}.3Y6767676767676767676767676767676W6767676767676
767676767676767676$M676767676767676767676767676767876-.|6>8-15:-1j;-/{6-.x6F8-1Q:-1~[-056-.d6?8-1q:-2p$$k8%/'j%'W$$n:%/
'l%(?Dx$$o8%/'|%'E$$p8%/(N%'O$$sb%/'}%'E676767676767796767676779796779677967676767$$v<%/(O%'G6I6G$$x:%/'w%'w7('(k$$y:%/
'x%'w7('(k$&v7$&E%)_$&wA$&F%)_6w79%;&m7\FW$&x7$&H%)_$0{;$0h&,O=E8;$0{F$1M&+s67676?6?676G6=$2g<$3=&/c677O$2i7$2v&0e$387$
2w&0e$4SB$4J&3]8AXx676?8S%%u:%&K'(567%%w7%&:')7%&E7%&7')7%&F7%&;')7%'c9%'o',W67%'|9%'9'+9m$S%)g7%)Y'/y%+?7%+G'3Q%+R;%+=
'3C<C9=%+S7%+E'3Q%,q9%,}($s67%-@7%-5($s%.i9%.y((q8;%.n7%.{((q%.~7%.}((q%4U8%4V(3s%4W8%4X(3s%4c<%4Y)#a77>$n&#N:%4L(2[$;%
A&#PJ%3p(2_?I:?:?:?l$Y?I:?:?:?&$}7&$u)&i('>K(&Y-){797979799=^$=7989677;,)>$K,(;$#-?79797979797979797979798;7979<C8;8;8;
8;M$T?%OCQ79797979797979797979798;7979<C8;8;8;8;M$T8$}6767679K,)?I,(`$#.=8;8;8;8;$?%I8;8;8;8;%3*Y;%3*9(11;79DI%3+|9%3,9
(2#C67%33C7%33P(21c%33\7%33Q(21c%4&C7%4&O(3)c%4&M7%4&N(3)c%4&P7%4&Q(3)c%4)d9%4)o(30[67'4+6>'4*y,32e67$G%c67'4+?<'4*{,32
u$H%Y67'4+@<'4*|,32u$I%Y67'4+A8'4*},32u'4+B8'4*~,32u'4+C8'4+5,32u)";
